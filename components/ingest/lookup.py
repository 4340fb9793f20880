"""List the images of a folder, with their labels and splits, and fingerprint the listing.

Imports neither TensorFlow nor TFX, as Kubeflow Pipelines looks up the cache in a small task.
"""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import posixpath
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from components.contract.artifact_files import list_names, on_disk
from components.contract.configuration import from_json, to_json
from components.contract.errors import DataError
from components.contract.example import SPAN
from components.contract.printable import quote, quote_path
from components.contract.properties import EXAMPLES_KEY_PROPERTY, LookupInput
from components.host.machine import pause_collection
from components.ingest.config import IngestConfig
from components.ingest.datasets.reading import check_table, find_layout, find_shards, read_images
from components.ingest.datasets.record_listing import list_records
from components.ingest.plan.splits import choose_splits
from components.ingest.source.corrections import Corrections, load_corrections
from components.ingest.source.folder_layout import ARCHIVES, PICTURES, explain_file, find_picture
from components.ingest.source.folder_tree import exclude_option
from components.ingest.source.labeling import (
    METADATA,
    Exclusion,
    by_folder,
    by_manifest,
    by_metadata,
)
from components.ingest.source.listing import (
    ImageFile,
    Listing,
    check_labels,
    place_in_listing,
    read_facts,
    read_listing,
    write_listing,
)
from components.ingest.source.manifest import FORMATS
from components.ingest.source.spans import Span, describe_gaps, find_root, find_spans
from components.storage.fetch import Unread, read_files
from components.storage.folder import LARGEST_POINTER, POINTER, is_file
from components.storage.folder_listing import Found, explain_ignored, find_file, find_files
from components.storage.retry import digest
from components.storage.row_table import keep, sort

LISTING_PROPERTY = "listing"
"""Execution property: the file in which the driver leaves the listing for the executor."""

# Files that a thread reads in one go.
_PART = 256


def look_up(inputs: Mapping[str, LookupInput], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of TFX's driver of FileBasedExampleGen, and the listing's file.

    A listing that is given is used, so that a run lists the folder once.
    """
    config = from_json(IngestConfig, properties["config"])
    listings, path = properties["listings"], properties.get(LISTING_PROPERTY) or ""
    if path and config.fingerprint == "metadata":
        facts = read_facts(path)
    else:
        listing = read_listing(path) if path else list_source(properties["input_base"], config)
        check_labels(listing)
        if config.fingerprint == "content":
            listing = _add_checksums(listing, config)
        path = write_listing(listing, listings) if listings else ""
        facts = read_facts(path) if path else listing.facts()
    if config.corrections and listings:
        # The listing holds the corrections, so moving their file must not ingest again.
        config = dataclasses.replace(config, corrections=posixpath.basename(config.corrections))
        facts["config"] = to_json(config)
    # The facts name the span, however it was chosen.
    options = to_json(dataclasses.replace(config, span=None))
    made_of = {**facts, "config": options, "code": properties.get("code_digest")}
    key = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()
    return {**facts, LISTING_PROPERTY: path, EXAMPLES_KEY_PROPERTY: key}


def _add_checksums(listing: Listing, config: IngestConfig) -> Listing:
    """Read the files that are listed without a checksum, and add it."""

    def read(files: Sequence[ImageFile]) -> list[tuple[str, str]]:
        return [
            (file.path, f"md5:{digest(content, 'md5')}")
            for file, content in read_images(listing.root, files, config)
            if not isinstance(content, Unread)
        ]

    unknown = [file for file in listing.files if not file.checksum]
    parts = [unknown[start : start + _PART] for start in range(0, len(unknown), _PART)]
    with ThreadPoolExecutor(config.workers) as pool:
        known = dict(itertools.chain.from_iterable(pool.map(read, parts)))
    files = (file._replace(checksum=known.get(file.path, file.checksum)) for file in listing.files)
    return dataclasses.replace(listing, files=keep(files, ImageFile))


def list_source(data: str, config: IngestConfig) -> Listing:
    """List the folder, or the spans, that the pipeline's `data` currently refers to."""
    spans = find_spans(data, config.span, config.window or 1)
    with pause_collection():
        listing = _list_spans(data, spans, config)
    return dataclasses.replace(listing, span=spans[-1].span, version=spans[-1].version)


def _list_spans(data: str, spans: Sequence[Span], config: IngestConfig) -> Listing:
    """List one span, or several with the paths that they have in the folder above them."""
    if config.window is None:
        return list_images(spans[-1].folder, config)
    root = find_root(data)
    notes = describe_gaps(spans, config.window)
    parts: dict[int, Listing] = {}
    is_excluded = Exclusion(config.exclude)
    for span in spans:
        folder, entries = _find(span.folder, is_excluded)
        if entries:
            parts[span.span] = _label(folder, entries, config, is_excluded)
        else:
            notes.append(f"{folder} is empty.")
    if not parts:
        raise DataError(f"All folders that {data} matches are empty: add images.")
    places = {part.layout: part.root for part in reversed(parts.values())}
    if len(places) > 1:
        *_, (second, other), (first, place) = places.items()
        raise DataError(
            f"The layout of {place} is {first}, but that of {other} is {second}: set "
            f"ingest.layout, or choose a smaller ingest.window."
        )
    _check_numbers([part for part in parts.values() if part.taken])
    return _complete(_join(root, parts, [*notes, *is_excluded.notes()]), config)


def _check_numbers(spans: Sequence[Listing]) -> None:
    """Raise `DataError` if the records of one span have numbers for the names of another."""
    labels = {
        f"{span.root}/{span.files[0].path}": {file.label for file in span.files} for span in spans
    }
    numbers = [path for path, names in labels.items() if all(map(str.isdecimal, names))]
    names = [path for path, names in labels.items() if not any(map(str.isdecimal, names))]
    if numbers and names:
        raise DataError(
            f"The labels of {numbers[0]} and the like are numbers, but those of {names[0]} are "
            f"names: put a file labels.txt that names the numbers beside the former."
        )


def _join(root: str, parts: Mapping[int, Listing], notes: Sequence[str]) -> Listing:
    """Join the listings of spans, with paths from the folder above them, and the span's number."""
    shared = "" if root == "." else f"{root.rstrip('/')}/"
    above = {
        span: f"{part.root.rstrip('/')}/".removeprefix(shared).lstrip("/")
        for span, part in parts.items()
    }
    files = (
        file._replace(path=above[span] + file.path, columns={**file.columns, SPAN: span})
        for span, part in parts.items()
        for file in part.files
    )
    skipped = {
        above[span] + path: reason
        for span, part in parts.items()
        for path, reason in part.skipped.items()
    }
    of_spans = dict.fromkeys(note for part in parts.values() for note in part.notes)
    *_, last = parts.values()
    return dataclasses.replace(
        last, root=root, files=keep(files, ImageFile), skipped=skipped, notes=(*notes, *of_spans)
    )


def list_images(folder: str, config: IngestConfig | None = None) -> Listing:
    """List the images of `folder`, a path or URL, with their labels and splits.

    Raises:
        DataError: the folder does not exist, has no labels, or its layout is unclear.
    """
    config = config or IngestConfig()
    is_excluded = Exclusion(config.exclude)
    folder, entries = _find(folder, is_excluded)
    listing = _label(folder, entries, config, is_excluded)
    # Of a million files, it takes as much memory as the result.
    del entries
    listing = dataclasses.replace(listing, notes=(*listing.notes, *is_excluded.notes()))
    return _complete(listing, config)


def _label(
    folder: str, entries: Sequence[Found], config: IngestConfig, is_excluded: Exclusion
) -> Listing:
    if config.manifest:
        return by_manifest(folder, entries, config, is_excluded)
    if records := _find_records(folder, entries, config):
        skipped = {entry.path: reason for entry in entries if (reason := explain_ignored(entry))}
        return dataclasses.replace(records, skipped={**skipped, **records.skipped})
    by_table = by_metadata(folder, entries, config, is_excluded)
    return by_table or by_folder(folder, entries, config)


def _complete(listing: Listing, config: IngestConfig) -> Listing:
    files = listing.files
    # Only they name groups.
    if listing.layout == "manifest" or "group" in (config.features or {}):
        files = _bind_groups(files)
    counts = collections.Counter[str | None]()
    is_sorted, before = True, ("", 0)
    for file in files:
        counts[file.split] += 1
        place = place_in_listing(file)
        is_sorted, before = is_sorted and before <= place, place
    splits, fractions = choose_splits(counts, config.splits)
    if any(name != split for name, split in splits.items()):
        given = (file._replace(split=splits[file.split]) for file in files)
        files = keep(given, ImageFile)
    if not is_sorted:
        files = sort(files, ImageFile, place_in_listing)
    return dataclasses.replace(
        listing,
        files=files,
        skipped=dict(sorted(listing.skipped.items())),
        fractions=fractions,
        corrections=load_corrections(config.corrections) if config.corrections else Corrections(),
    )


def _find(folder: str, is_excluded: Exclusion) -> tuple[str, Sequence[Found]]:
    """List a folder, or a single shard as the only file of its folder."""
    name = posixpath.basename(folder.rstrip("/"))
    is_shard = find_layout(name)
    if (is_shard or name.lower().endswith((*ARCHIVES, *FORMATS))) and is_file(folder):
        if not is_shard:
            raise DataError(explain_file(folder))
        parent = folder.rpartition("/")[0]
        file = find_file(folder)
        assert file is not None
        return parent or ("/" if folder.startswith("/") else "."), [file._replace(path=name)]
    excluded = is_excluded if is_excluded.patterns else None
    return folder, find_files(folder, excluded, is_lenient=True)


def _find_records(folder: str, entries: Sequence[Found], config: IngestConfig) -> Listing | None:
    """List the records of the shards of a folder; return None for a folder of images.

    Raises:
        DataError: the folder has both, or its shards cannot be used.
    """
    # Most are pictures, which need no closer look.
    others = (entry for entry in entries if not entry.path.lower().endswith(PICTURES))
    shards, left = find_shards(itertools.filterfalse(explain_ignored, others))
    if not shards and not left:
        return None
    names = [file.path for files in shards.values() for file in files]
    loose = all(posixpath.basename(name) in METADATA for name in names)
    visible = (e for e in entries if e.path not in left and not explain_ignored(e))
    picture = find_picture((entry.path for entry in visible), loose=loose)
    if not shards and not picture:
        path, why = next(iter(left.items()))
        raise DataError(f"{folder} has no shards but {path} and the like, {why}.")
    for entry in (entry for entry in entries if shards and not entry.problem):
        check_table(folder.rstrip("/"), entry.path)
    # A table of labels, or the archive that the images come from.
    beside = not any("/" in name for name in names) and shards.keys() <= {"parquet", "webdataset"}
    if not shards or (picture and (loose or beside)):
        return None
    if picture:
        raise DataError(
            f"{folder} has both shards and images, such as {names[0]} and {picture}: leave one "
            f"kind out, as with {exclude_option(names[:1])}."
        )
    _check_pointers(folder, shards, config)
    _check_table_above(folder)
    kept = [e for e in entries if e.path not in left and not explain_ignored(e)]
    records = list_records(folder, kept, shards, config)
    return dataclasses.replace(records, skipped={**left, **records.skipped})


def _check_pointers(
    folder: str, shards: Mapping[str, Sequence[Found]], config: IngestConfig
) -> None:
    """Raise `DataError` if a shard only stands for the real one."""
    small = [file for files in shards.values() for file in files if file.size < LARGEST_POINTER]
    for file, content in read_files(folder, small, config):
        if content == Unread(POINTER):
            raise DataError(f"{folder}/{file.path} is {POINTER}.")


def _check_table_above(folder: str) -> None:
    """Raise `DataError` if a folder on disk is that of the shards of a table, which may be old."""
    above = os.path.dirname(os.path.abspath(folder)) if on_disk(folder) else ""
    for name in ("_delta_log", "metadata") if above else ():
        with contextlib.suppress(PermissionError):
            for file in list_names(f"{above}/{name}"):
                check_table(above, f"{name}/{file}")


def _bind_groups(files: Sequence[ImageFile]) -> Sequence[ImageFile]:
    """Give all files of a group the split that is given for one of them.

    Raises:
        DataError: a group has several splits.
    """
    splits: dict[str | None, str] = {}
    for file in files:
        if file.group is not None and file.split is not None:
            other = splits.setdefault(file.group, file.split)
            if other != file.split:
                raise DataError(
                    f"Group {quote(file.group)} is in the splits {quote(other)} and "
                    f"{quote(file.split)}: all images of a group belong to one split; "
                    f"{quote_path(file.path)} is one of them."
                )
    if not splits:
        return files
    bound = (file._replace(split=splits.get(file.group, file.split)) for file in files)
    return keep(bound, ImageFile)

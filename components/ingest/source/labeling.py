"""Label the files of a folder by their folders or a manifest."""

import collections
import fnmatch
import itertools
import json
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from components.contract.errors import DataError
from components.contract.printable import quote_path
from components.ingest.config import IngestConfig
from components.ingest.source.columns import keep_columns
from components.ingest.source.folder_layout import (
    explain_no_labels,
    explain_paths,
    find_split_folders,
    note_other_splits,
)
from components.ingest.source.listing import ImageFile
from components.ingest.source.manifest import TYPELESS, read_manifest
from components.ingest.source.values import is_unlabeled
from components.storage.folder_listing import LINK_AGAIN, MISSING, Found, explain_ignored
from components.storage.row_table import keep

UNMATCHED = "Nothing matches"
"""How a note on a pattern of `ingest.exclude` begins that matches no file."""

NO_LABEL = "no label"
_EXCLUDED, _UNLABELLED = "excluded", "in no label folder"


class Labelled(NamedTuple):
    """Files, or records of shards, with labels."""

    files: Sequence[ImageFile]
    skipped: dict[str, str]
    """Path → why it is not used, of all other files and records."""
    layout: str
    notes: list[str]
    """Warnings."""
    taken: str = ""
    """Which features of records are the image, the label and so on."""
    features: Mapping[str, str] = {}
    """Name of a feature → its first value, in words."""


def skip_unused(found: Iterable[Found], config: IngestConfig) -> tuple[dict[str, str], list[str]]:
    """Return the reason for each ignored or excluded file, and notes on patterns without any."""
    skipped = {entry.path: reason for entry in found if (reason := explain_ignored(entry))}
    excluded, notes = exclude((entry.path for entry in found), config.exclude)
    return skipped | dict.fromkeys(excluded, _EXCLUDED), notes


def by_folder(folder: str, found: Sequence[Found], config: IngestConfig) -> Labelled:
    """Label files by their folders."""
    excluded, notes = exclude((entry.path for entry in found), config.exclude)
    skipped = dict.fromkeys(excluded, _EXCLUDED)
    splits = find_split_folders(folder, _find_folders(found, skipped), config.layout)
    depth = 1 if splits else 0
    for path, reason in skipped.items() if splits else ():
        if path.count("/") == depth and reason == LINK_AGAIN:
            raise DataError(
                f"{path} is {LINK_AGAIN}: give each label of a split a folder of its own, or "
                f"leave the link out with --ingest.exclude {shlex.quote(json.dumps([path]))}."
            )
    empty = collections.Counter[str]()
    labelled: set[str] = set()

    def label_files() -> Iterator[ImageFile]:
        before, label, unused = None, "", _UNLABELLED
        for path, _, size, version, checksum in found:
            if path in skipped:
                continue
            if (place := path.rpartition("/")[0]) != before:
                before, parts = place, path.split("/")
                # All files of a label share its text.
                label = sys.intern(parts[depth]) if len(parts) >= depth + 2 else ""
                split = splits.get(parts[0])
                unused = NO_LABEL if is_unlabeled(label) else _UNLABELLED
                if label:
                    labelled.add(parts[0])
            if label and unused != NO_LABEL:
                yield ImageFile(path, label, split, size, version, None, checksum)
            else:
                skipped[path] = unused
                empty[parts[0]] += 1

    files = keep(label_files(), ImageFile._make)
    if not files:
        unlabelled = (path for path, reason in skipped.items() if reason == _UNLABELLED)
        raise DataError(explain_no_labels(folder, [path for path in unlabelled if "/" not in path]))
    notes += note_other_splits(folder)
    notes += [
        f"{split}/ has no label folders, so its {empty[split]:,} files are skipped."
        for split in splits
        if split not in labelled
    ]
    return Labelled(files, skipped, "split" if splits else "label", notes)


def _find_folders(found: Iterable[Found], skipped: dict[str, str]) -> Iterator[str]:
    """Yield the path of one file of each folder; add the reason for each ignored file."""
    before = None
    for entry in found:
        if reason := explain_ignored(entry):
            skipped.setdefault(entry.path, reason)
        elif (place := entry.path.rpartition("/")[0]) != before and entry.path not in skipped:
            before = place
            yield entry.path


def by_manifest(folder: str, found: Sequence[Found], config: IngestConfig) -> Labelled:
    """Label files by the manifest, hidden ones too; ingest rejects those that do not exist."""
    manifest = config.manifest or ""
    rows = read_manifest(
        manifest, config.group_by, config.columns or (), splits=config.splits or (), folder=folder
    )
    paths = itertools.chain((entry.path for entry in found), rows)
    excluded, notes = exclude(paths, config.exclude)
    unlabeled = [path for path, row in rows.items() if not row.label and path not in excluded]
    if unlabeled:
        notes.append(
            f"{len(unlabeled):,} rows of {manifest} have no label, such as that of "
            f"{quote_path(unlabeled[0])}: they are skipped."
        )
    rows = {path: row for path, row in rows.items() if row.label and path not in excluded}
    entries = {entry.path: entry for entry in found if not entry.problem}
    given = [row.columns for row in rows.values()]
    parse = manifest.lower().endswith(TYPELESS)
    kept, left_out = keep_columns(given, config.columns, source=manifest, parse=parse)
    files = []
    for (path, (label, split, group, _)), columns in zip(rows.items(), kept, strict=True):
        _, _, size, version, checksum = entries.get(path, Found(path, "", 0, MISSING, ""))
        files.append(ImageFile(path, label or "", split, size, version, group, checksum, columns))
    if all(file.version == MISSING for file in files):
        raise DataError(explain_paths(manifest, next(iter(rows), ""), folder, entries.keys()))
    unlisted = (entry for entry in found if entry.path not in rows)
    skipped = {entry.path: explain_ignored(entry) or "not in the manifest" for entry in unlisted}
    skipped |= dict.fromkeys(unlabeled, NO_LABEL) | dict.fromkeys(excluded, _EXCLUDED)
    return Labelled(files, skipped, "manifest", [*notes, *left_out])


def exclude(paths: Iterable[str], patterns: Sequence[str]) -> tuple[set[str], list[str]]:
    """Return the paths that `ingest.exclude` leaves out, and a note on patterns without any."""
    found: dict[str, set[str]] = {pattern: set() for pattern in patterns}
    # A * of fnmatch matches slashes, too.
    wanted = {
        pattern: re.compile(
            "|".join(map(fnmatch.translate, (pattern.rstrip("/"), pattern.rstrip("/") + "/*")))
        ).match
        for pattern in patterns
    }
    for path in paths if wanted else ():
        for pattern, matches in wanted.items():
            if matches(path):
                found[pattern].add(path)
    notes = [f"{UNMATCHED} {of!r} of ingest.exclude." for of in patterns if not found[of]]
    return set().union(*found.values()), notes

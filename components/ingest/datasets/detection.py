"""Find the shards of a folder, and list their records as images with labels and splits."""

import collections
import itertools
import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from components.contract.errors import DataError
from components.contract.example import is_split_name
from components.contract.printable import quote
from components.ingest.config import IngestConfig
from components.ingest.datasets import columnar, example_records, webdataset
from components.ingest.datasets.features import (
    Features,
    SeveralLabelsError,
    choose_features,
    find_names,
    label_text,
    split_of_shard,
)
from components.ingest.datasets.record import (
    DamagedShardError,
    Format,
    Origin,
    Record,
    Shard,
    explain_damage,
)
from components.ingest.source.folder_layout import split_of_name
from components.ingest.source.listing import ImageFile
from components.storage.folder import read_bytes
from components.storage.folder_listing import Found

FORMATS: dict[str, Format] = {
    "webdataset": webdataset.FORMAT,
    "parquet": columnar.FORMAT,
    "arrow": columnar.FORMAT,
    "tfrecord": example_records.FORMAT,
}
"""Layout → its functions."""

_NAMES = {
    "webdataset": re.compile(r"\.(tar|tar\.gz|tgz)$"),
    "parquet": re.compile(r"\.parquet$"),
    "arrow": re.compile(r"\.(arrow|feather)$"),
    "tfrecord": re.compile(
        r"(\.tfrec|tfrecords?)([-_.]?\d+)*(-of-\d+)?(\.gz)?$|-\d{5,}-of-\d{5,}(\.gz)?$"
    ),
}
_OTHER_FORMATS = re.compile(r"\.?(array_record|riegeli|bagz)([-.]|$)")
_PART = re.compile(r"^(.*)-(\d{5,})-of-(\d{5,})")
_TFDS = "dataset_info.json"
# Records of a shard that the choice of features looks at.
_SAMPLE = 8


class RecordListing(NamedTuple):
    """The records of all shards of a folder."""

    files: list[ImageFile]
    """Records with an image and a label, and damaged ones."""
    skipped: dict[str, str]
    """Path → why it is not used: other files, and records without an image or a label."""
    layout: str
    notes: list[str]
    taken: str
    """Which features are the image, the label and so on."""
    features: Mapping[str, str]
    """Name → first value, in words."""


class _Source(NamedTuple):
    """What is known of all shards before their records are listed."""

    layout: str
    features: Features
    names: Mapping[str, Sequence[str]]
    """Feature → names of its integers."""
    splits: Mapping[str, str | None]
    """Path of a shard → its split."""


def find_shards(found: Sequence[Found]) -> dict[str, list[Found]]:
    """Return layout → files whose names are those of its shards."""
    shards: dict[str, list[Found]] = {}
    for entry in found:
        name = posixpath.basename(entry.path).lower()
        layout = next((key for key, known in _NAMES.items() if known.search(name)), None)
        if _OTHER_FORMATS.search(name):
            raise DataError(
                f"{entry.path} is in a format that cannot be read without its own library: "
                f"prepare the data set as TFRecord (TFDS: file_format='tfrecord')."
            )
        if layout:
            shards.setdefault(layout, []).append(entry)
    return shards


def list_records(
    folder: str, found: Sequence[Found], shards: Mapping[str, Sequence[Found]], config: IngestConfig
) -> RecordListing:
    """List the records of all shards, in one pass over each.

    Args:
        folder: path or URL.
        found: all its files but hidden and excluded ones.
        shards: layout → its shards among them.
        config: options of ingest.

    Raises:
        DataError: the shards are of several formats, features are missing, or nothing is readable.
    """
    if len(shards) > 1:
        named = " and ".join(files[0].path for files in shards.values())
        raise DataError(
            f"{folder} has shards of several formats, such as {named}: leave all but one out with "
            f"ingest.exclude."
        )
    [(layout, files)] = shards.items()
    size = round(config.max_image_mib * 2**20)
    opened = [Shard(folder, file, size) for file in files]
    samples, peeked = _peek(opened, FORMATS[layout])
    names = {**FORMATS[layout].class_names(peeked)} if samples else {}
    features = choose_features(
        samples, config.features or {}, peeked.file.path, needs_label=not config.manifest
    )
    names |= _read_names(folder, features.label, [entry.path for entry in found], names)
    splits, notes = _find_splits(folder, opened, features, config)
    source = _Source(layout, features, names, splits)
    with ThreadPoolExecutor(config.workers) as pool:
        lists = list(pool.map(lambda shard: _list_shard(shard, source, config), opened))
    for part in lists:
        notes += part.notes
    listed = _fill_damaged([file for part in lists for file in part.files])
    if not listed:
        raise DataError(_explain_nothing(folder, lists))
    others = {entry.path: "not a shard" for entry in found if entry.path not in splits}
    is_tfds = any(posixpath.basename(path) == _TFDS for path in others)
    return RecordListing(
        listed,
        others | {path: why for part in lists for path, why in part.skipped.items()},
        "tfds" if is_tfds and layout == "tfrecord" else layout,
        notes + _note_missing(splits),
        features.describe(),
        {name: _preview(value) for name, value in _union(samples).items()},
    )


def _peek(shards: Sequence[Shard], form: Format) -> tuple[list[dict[str, Any]], Shard]:
    """Return the first records of the first shard that has any.

    Raises:
        DataError: no shard has a readable record.
    """
    reasons = []
    for shard in shards:
        samples: list[dict[str, Any]] = []
        try:
            samples.extend(itertools.islice(form.peek(shard), _SAMPLE))
        except Exception as error:
            reasons.append(f"{shard.file.path}: {explain_damage(error)}")
        if samples:
            return samples, shard
    why = f" ({reasons[0]})" if reasons else ""
    raise DataError(
        f"None of {len(shards)} shards in {shards[0].folder}, {form.title}, has a readable "
        f"record{why}: check that it is the right folder."
    )


def _union(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for sample in reversed(samples):
        merged |= sample
    return dict(sorted(merged.items()))


def _preview(value: Any) -> str:
    if isinstance(value, bytes):
        is_text = len(value) < 200 and value.isascii() and value.decode().isprintable()
        return quote(value.decode()) if is_text else "bytes"
    return f"{len(value)} values" if isinstance(value, list) else quote(value)


def _read_names(
    folder: str, label: str, paths: Sequence[str], known: Mapping[str, Sequence[str]]
) -> dict[str, Sequence[str]]:
    """Read the names of a label's integers from a file beside the shards, if there is one."""
    files = find_names(label, paths) if label and label not in known else []
    if not files:
        return {}
    text = read_bytes(f"{folder.rstrip('/')}/{files[0]}").decode("utf-8", "surrogateescape")
    return {label: tuple(text.rstrip("\n").split("\n"))}


def _find_splits(
    folder: str, shards: Sequence[Shard], features: Features, config: IngestConfig
) -> tuple[dict[str, str | None], list[str]]:
    """Return path of a shard → split, and notes.

    Raises:
        DataError: splits are named, but none of them is train.
    """
    found = {shard.file.path: split_of_shard(shard.file.path) for shard in shards}
    if features.split or config.layout == "label" or config.manifest:
        return dict.fromkeys(found), []
    splits = {split for split in found.values() if split}
    if splits and "train" not in splits and None not in found.values():
        raise DataError(
            f"{folder} has shards of {' and '.join(sorted(splits))}, but none of train: add them, "
            f"or set ingest.layout to label to divide all records by hash."
        )
    notes = []
    if splits and (loose := [path for path, split in found.items() if not split]):
        notes.append(
            f"{len(loose)} shards, such as {loose[0]}, name no split: their records are divided "
            f"by hash."
        )
    stems: dict[str, set[str]] = {}
    for path, split in found.items():
        if split:
            stem = re.sub(r"[-_.]?\d[\d-]*(-of-\d+)?", "", path.partition(".")[0])
            stems.setdefault(split, set()).add(stem)
    notes += [
        f"The shards {' and '.join(sorted(alike))} are all in the split {split}."
        for split, alike in stems.items()
        if len(alike) > 1
    ]
    return found, notes


def _note_missing(paths: Mapping[str, Any]) -> list[str]:
    """Return a note on each series of shards `NAME-00000-of-00010` that is incomplete."""
    series: dict[tuple[str, int], set[int]] = {}
    for path in paths:
        if match := _PART.match(path):
            series.setdefault((match[1], int(match[3])), set()).add(int(match[2]))
    return [
        f"Only {len(numbers):,} of {count:,} shards of {name} are there."
        for (name, count), numbers in series.items()
        if len(numbers) < count
    ]


class _ShardList(NamedTuple):
    """The records of one shard."""

    files: list[ImageFile]
    skipped: dict[str, str]
    notes: list[str]


# Of a damaged record, until it gets that of another one.
_NO_LABEL = ""


def _list_shard(shard: Shard, source: _Source, config: IngestConfig) -> _ShardList:
    """List the records of a shard; from where it is damaged on, they are one entry."""
    entry, features = shard.file, source.features
    listed = _ShardList([], {}, [])
    split = source.splits[entry.path]
    checksum = f"shard:{entry.checksum}" if entry.checksum else ""

    def add(record: Record, label: str, split: str | None, group: str | None, why: str) -> None:
        origin = Origin(
            source.layout, features.image, entry.size, entry.version, record.place, why
        )
        listed.files.append(
            ImageFile(path, label, split, record.size or 0, origin.encode(), group, checksum)
        )

    number = 0
    scanned = FORMATS[source.layout].scan(shard, features.image, features.further)
    while True:
        path = f"{entry.path}#{number}"
        try:
            record = next(scanned, None)
        except Exception as error:
            why = f"{explain_damage(error)}; its records from here on are lost"
            listed.notes.append(f"{entry.path} is damaged at record {number}: {why}.")
            add(Record("", 0, {}), _NO_LABEL, split, None, why)
            break
        if record is None:
            break
        number += 1
        if record.problem:
            add(record, _NO_LABEL, split, None, record.problem)
            continue
        try:
            label = _label(record, source)
        except SeveralLabelsError as error:
            listed.skipped[path] = str(error)
            continue
        if record.size is None or not (label or config.manifest):
            listed.skipped[path] = "no image" if record.size is None else "no label"
            continue
        group = label_text(record.features.get(features.group))
        add(record, label or _NO_LABEL, _split(record, source, split), group, "")
    _note_unused(listed, number, entry.path)
    return listed


def _label(record: Record, source: _Source) -> str | None:
    name = source.features.label
    return label_text(record.features.get(name), source.names.get(name, ()))


def _split(record: Record, source: _Source, split: str | None) -> str | None:
    """Return the split that a record names itself, or else that of its shard.

    Raises:
        DataError: the name cannot be a split.
    """
    name = label_text(record.features.get(source.features.split))
    if name is None:
        return split
    split = split_of_name(name) or name
    if not is_split_name(split):
        raise DataError(
            f"The feature {quote(source.features.split)} names a split {quote(name)}: use only "
            f"letters, digits, - and _, or set ingest.features to another one."
        )
    return split


def _note_unused(listed: _ShardList, count: int, path: str) -> None:
    """Note that all records of a shard lack an image or a label."""
    if listed.files or not count:
        return
    [(reason, _), *_] = collections.Counter(listed.skipped.values()).most_common(1)
    listed.notes.append(f"None of the {count:,} records of {path} is used: {reason}.")


def _fill_damaged(files: Sequence[ImageFile]) -> list[ImageFile]:
    """Give damaged records, which are rejected, the label and split of another one."""
    good = next((file for file in files if file.label), None)
    if good is None:
        return []
    filled, last = [], good
    for file in files:
        if file.label:
            last = file
        else:
            file = file._replace(label=last.label, split=file.split or last.split)
        filled.append(file)
    return filled


def _explain_nothing(folder: str, lists: Sequence[_ShardList]) -> str:
    reasons = [note for part in lists for note in part.notes] or ["They are empty."]
    return f"No record in the shards of {folder} has an image and a label. {reasons[0]}"

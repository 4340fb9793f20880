"""List the records of shards as images with labels and splits."""

import collections
import contextlib
import itertools
import json
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from components.contract.errors import DataError
from components.contract.example import TRAIN
from components.contract.printable import quote
from components.ingest.config import IngestConfig
from components.ingest.datasets.class_names import ClassNames, ShardLabels, check_names, find_names
from components.ingest.datasets.features import Features, choose_features
from components.ingest.datasets.reading import FORMATS
from components.ingest.datasets.record import (
    DamagedShardError,
    Format,
    Origin,
    Record,
    Shard,
    explain_damage,
)
from components.ingest.source.folder_layout import split_of_name
from components.ingest.source.labeling import NO_LABEL
from components.ingest.source.listing import ImageFile, Listing
from components.ingest.source.values import RefusedValueError, read_split, read_value
from components.storage.folder import read_bytes
from components.storage.folder_listing import Found

_PART = re.compile(r"^(.*)-(\d{5,})-of-(\d{5,})")


def split_of_shard(path: str) -> str | None:
    """Return the split that the name of a shard, or of a folder above it, stands for.

    Examples: `train-00000-of-00002.parquet`, `cifar10-test.tfrecord-00000-of-00001`,
    `Split-eval/data-0`.
    """
    *folders, name = path.split("/")
    for part in (name.partition(".")[0], *reversed(folders)):
        splits = [split for word in re.split(r"[^A-Za-z]+", part) if (split := split_of_name(word))]
        if splits:
            return splits[-1]
    return None


def find_splits(folder: str, paths: Iterable[str]) -> tuple[dict[str, str | None], list[str]]:
    """Return path of a shard → its split, and notes on the names.

    Raises:
        DataError: splits are named, but none of them is train.
    """
    named = {path: split_of_shard(path) for path in paths}
    splits = {split for split in named.values() if split}
    loose = [path for path, split in named.items() if not split]
    if splits and TRAIN not in splits and not loose:
        raise DataError(
            f"{folder} has shards of {' and '.join(sorted(splits))}, but none of train: add them, "
            f"or set ingest.layout to label to divide all records by hash."
        )
    notes = []
    if splits and loose:
        notes.append(
            f"{len(loose)} shards, such as {loose[0]}, name no split: their records are divided "
            f"by hash."
        )
    return named, notes


def note_missing(paths: Iterable[str]) -> list[str]:
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


_TFDS, _TFDS_FEATURES = "dataset_info.json", "features.json"
_NO_IMAGE, _NO_LABEL_FEATURE = "no image", "no feature for the label"
_NAMES = "names of the labels"
# Label of a damaged record, until it gets that of another one.
_UNKNOWN = ""
# Records of a shard that the choice of features looks at.
_SAMPLE = 8


class _Source(NamedTuple):
    """What is known of all shards before their records are listed."""

    layout: str
    features: Features
    names: ClassNames
    """Names of the labels in a file."""
    splits: Mapping[str, str | None]
    """Path of a shard → its split."""


def list_records(
    folder: str,
    entries: Sequence[Found],
    shards: Mapping[str, Sequence[Found]],
    config: IngestConfig,
) -> Listing:
    """List the records of all shards, in one pass over each.

    `entries` are all files of the folder but hidden and excluded ones, and `shards` layout → its
    shards among them.

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
    source, notes = _examine(layout, opened, entries, config)
    with ThreadPoolExecutor(config.workers) as pool:
        lists = list(pool.map(lambda shard: _list_shard(shard, source, config), opened))
    notes += check_names([part.labels for part in lists])
    listed = _fill_damaged([file for part in lists for file in part.files])
    notes += itertools.chain.from_iterable(part.notes for part in lists)
    skipped = {path: why for part in lists for path, why in part.skipped.items()}
    examples = {why: path for path, why in reversed(skipped.items())}
    notes += [
        f"{count:,} of {len(listed) + len(skipped):,} records are skipped, such as "
        f"{examples[why]}: {why}."
        for why, count in collections.Counter(skipped.values()).most_common()
    ]
    if not listed:
        first = next((file for part in lists for file in part.files), None)
        why = f"{first.path}: {Origin.decode(first.version).problem}." if first else ""
        raise DataError(
            f"No record in the shards of {folder} has an image and a label. "
            f"{next(filter(None, (*notes, why)), 'They are empty.')}"
        )
    others = {entry.path: "not a shard" for entry in entries if entry.path not in source.splits}
    if source.names:
        others[source.names.source] = _NAMES
    is_tfds = any(posixpath.basename(path) == _TFDS for path in others)
    return Listing(
        folder,
        listed,
        others | skipped,
        "tfds" if is_tfds and layout == "tfrecord" else layout,
        (*notes, *note_missing(source.splits)),
        source.features.describe(),
    )


def _examine(
    layout: str, shards: Sequence[Shard], entries: Sequence[Found], config: IngestConfig
) -> tuple[_Source, list[str]]:
    """Choose features and splits by the first records; return notes, too."""
    folder = shards[0].folder
    samples, shard = _peek(shards, FORMATS[layout])
    known = FORMATS[layout].class_names(shard)
    features = choose_features(samples, config.features or {}, shard.file.path, labels=known)
    paths = [entry.path for entry in entries]
    _check_pixels(folder, features.image, paths)
    files = [shard.file.path for shard in shards]
    names = find_names(folder, features.label, paths)
    if features.split or config.layout == "label":
        return _Source(layout, features, names, dict.fromkeys(files)), []
    splits, notes = find_splits(folder, files)
    return _Source(layout, features, names, splits), notes


def _check_pixels(folder: str, image: str, paths: Sequence[str]) -> None:
    """Raise `DataError` if TFDS has stored floats, as the bytes of RGBA: their range is unknown."""
    for path in paths:
        if posixpath.basename(path) != _TFDS_FEATURES:
            continue
        try:
            feature = json.loads(read_bytes(f"{folder.rstrip('/')}/{path}"))
            for name in image.split("/"):
                feature = feature["featuresDict"]["features"][name]
            kind = str(feature["image"]["dtype"])
        except (KeyError, TypeError, ValueError):
            continue
        if not kind.startswith("uint"):
            raise DataError(
                f"The feature {quote(image)} of {folder} holds pixels of {kind}, by {path}: write "
                f"the data set with uint8 or uint16."
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
        f"record{why}: check that it is the right folder, or, if this is an archive: unpack it."
    )


class _ShardList(NamedTuple):
    """The records of one shard."""

    files: list[ImageFile]
    skipped: dict[str, str]
    notes: list[str]
    labels: ShardLabels


def _list_shard(shard: Shard, source: _Source, config: IngestConfig) -> _ShardList:
    """List the records of a shard; from where it is damaged on, they are one entry."""
    path, form = shard.file.path, FORMATS[source.layout]
    scanned = form.scan(shard, source.features.image, source.features.further)
    listed = _ShardList([], {}, [], ShardLabels(path, source.names))
    number = 0
    with contextlib.suppress(DamagedShardError):  # Its records say so.
        if texts := form.class_names(shard).get(source.features.label):
            listed.labels.names = ClassNames.of(enumerate(texts), path).beside(source.names)
    while True:
        try:
            record = next(scanned, None)
        except Exception as error:
            why = f"{explain_damage(error)}; the records from here on are lost"
            listed.notes.append(f"{path} is damaged at record {number}: {why}.")
            record, scanned = Record("", 0, {}, why), iter(())
        if record is None:
            break
        name = f"{path}#{number}"
        image = _as_image(name, record, shard.file, source, listed.labels, config)
        if isinstance(image, ImageFile):
            listed.files.append(image)
        else:
            listed.skipped[name] = image
        number += 1
    _check_used(listed, path, source)
    return listed


def _as_image(
    name: str,
    record: Record,
    shard: Found,
    source: _Source,
    labels: ShardLabels,
    config: IngestConfig,
) -> ImageFile | str:
    """Return a record as a listed image, or the reason why it is skipped.

    Raises:
        DataError: it names an unknown split, or the group is neither text nor a number.
    """
    features, label = source.features, _UNKNOWN
    split, group = source.splits[shard.path], None
    if not record.problem and record.size is None:
        return _NO_IMAGE
    if not record.problem:
        if features.label not in record.features:
            return _NO_LABEL_FEATURE
        try:
            number = record.features.get(features.number)
            label = labels.read(record.features[features.label], number) or _UNKNOWN
        except RefusedValueError as error:
            return f"its label {error}"
        if not label:
            return NO_LABEL
        names = config.splits or ()
        split = _read(record, features.split, name, lambda value: read_split(value, names)) or split
        group = _read(record, features.group, name, read_value)
    place = (shard.size, shard.version, record.place, record.problem)
    version = Origin(source.layout, features.image, *place).encode()
    of_shard = f"shard:{shard.checksum} {features.image}" if shard.checksum else ""
    checksum = record.checksum or of_shard
    return ImageFile(name, label, split, record.size or 0, version, group, checksum)


def _read(record: Record, feature: str, name: str, read: Callable[[Any], str | None]) -> str | None:
    """Read a feature of the record `name`.

    Raises:
        DataError: it cannot be a split or a group.
    """
    value = record.features.get(feature)
    try:
        return read(value)
    except RefusedValueError as error:
        raise DataError(
            f"The feature {quote(feature)} of {name} is {quote(value)}, which "
            f"{error}; or take another feature with ingest.features."
        ) from None


def _check_used(listed: _ShardList, path: str, source: _Source) -> None:
    """Raise `DataError` if all records of a shard lack a feature that other shards have."""
    reasons = set(listed.skipped.values())
    if not listed.files and reasons and reasons <= {_NO_IMAGE, _NO_LABEL_FEATURE}:
        raise DataError(
            f"None of the {len(listed.skipped):,} records of {path} has "
            f"{source.features.describe()}: give shards of one data set, leave others out with "
            f"ingest.exclude, or name the features with ingest.features."
        )


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

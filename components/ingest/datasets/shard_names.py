"""What the names of shards say: their splits, and whether some are missing."""

import posixpath
import re
from collections.abc import Iterable, Sequence

from components.contract.errors import DataError
from components.contract.example import TRAIN
from components.ingest.source.folder_layout import split_of_name

_PART = re.compile(r"^(.*)-(\d{5,})-of-(\d{5,})")
_NUMBERS = re.compile(r"[-_.]?\d[\d-]*(-of-\d+)?")


def split_of_shard(path: str) -> str | None:
    """Return the split that the name of a shard, or of a folder above it, stands for.

    Examples: `train-00000-of-00002.parquet`, `cifar10-test.tfrecord-00000-of-00001`,
    `Split-eval/data-0`.
    """
    *folders, name = path.split("/")
    for part in (name.partition(".")[0], *reversed(folders)):
        found = [split for word in re.split(r"[^A-Za-z]+", part) if (split := split_of_name(word))]
        if found:
            return found[-1]
    return None


def find_names(name: str, files: Sequence[str]) -> list[str]:
    """Return the files that may list the names of the integers of feature `name`."""
    wanted = (f"{name}.labels.txt", "labels.txt", "classnames.txt")
    return [path for want in wanted for path in files if posixpath.basename(path) == want]


def find_splits(folder: str, paths: Iterable[str]) -> tuple[dict[str, str | None], list[str]]:
    """Return path of a shard → its split, and notes on the names.

    Raises:
        DataError: splits are named, but none of them is train.
    """
    found = {path: split_of_shard(path) for path in paths}
    splits = {split for split in found.values() if split}
    loose = [path for path, split in found.items() if not split]
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
    alike: dict[str, set[str]] = {}
    for path, split in found.items():
        if split:
            alike.setdefault(split, set()).add(_NUMBERS.sub("", path.partition(".")[0]))
    notes += [
        f"The shards {' and '.join(sorted(names))} are all in the split {split}."
        for split, names in alike.items()
        if len(names) > 1
    ]
    return found, notes


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

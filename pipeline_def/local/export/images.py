"""Reads the examples of a run as images with a label, and divides them into shards."""

import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from components.contract import example
from components.contract.errors import StorageError
from components.ingest.datasets import example_records
from components.ingest.datasets.record import DamagedShardError, Shard
from components.records.shard_files import count_examples, list_shards, read_index
from components.storage.folder_listing import Found

EXTENSIONS = {"jpeg": ".jpg", "png": ".png", "gif": ".gif", "bmp": ".bmp"}
"""`image/format` → extension."""

_SHARD_BYTES = 256 * 2**20
# Images are stored by ingest, which has checked their sizes.
_MOST_BYTES = 2**31


class Exported(NamedTuple):
    """An image as ingest stored it."""

    encoded: bytes
    format: str
    """One of `EXTENSIONS`."""
    label: str
    path: str
    """As ingest found it, relative to its folder."""
    sha256: str
    """Hexadecimal digest of the file that ingest found."""
    columns: Mapping[str, str | int | float]
    """The values that it has of `Collection.columns`."""


@dataclass(frozen=True)
class Collection:
    """All images of an Examples artifact."""

    examples: str
    """Path of the artifact."""
    counts: Mapping[str, int]
    """Split → number of images."""
    labels: tuple[str, ...]
    """Sorted names of the classes; the place of a name is its number."""
    columns: Mapping[str, str]
    """Further column → "str", "int" or "float"."""

    def read(self, split: str) -> Iterator[Exported]:
        """Yield the images of a split, always in the same order, and verify checksums.

        Raises:
            StorageError: a shard is damaged.
        """
        for path in list_shards(self.examples, split):
            folder, name = os.path.split(path)
            file = Found(name, "", os.path.getsize(path), "", "")
            try:
                yield from map(_make, example_records.peek(Shard(folder, file, _MOST_BYTES)))
            except DamagedShardError as error:
                problem = f"{path} is damaged ({error})"
                raise StorageError(f"{problem}: run the pipeline again.") from error

    def shards(self, split: str) -> Iterator[tuple[int, int, Iterator[Exported]]]:
        """Yield number, number of all, and images of each shard of a split, about 256 MiB each."""
        size = sum(map(os.path.getsize, list_shards(self.examples, split)))
        count = self.counts[split]
        shards = max(1, min(count, -(-size // _SHARD_BYTES)))
        images = self.read(split)
        for number in range(shards):
            first, last = (count * place // shards for place in (number, number + 1))
            yield number, shards, itertools.islice(images, last - first)


def open_collection(examples: str) -> Collection:
    """Read the index of an Examples artifact.

    Raises:
        StorageError: the artifact is gone or damaged.
    """
    try:
        index = read_index(examples)
    except FileNotFoundError as error:
        raise StorageError(f"{examples} has no index: run the pipeline again.") from error
    counts = {split: count for split, count in count_examples(index).items() if count}
    labels = sorted({label for of in index["labels"].values() for label in of})
    columns = {name: of["type"] for name, of in sorted(index.get("columns", {}).items())}
    return Collection(examples, example.sort_splits(counts), tuple(labels), columns)


def _make(features: Mapping[str, Any]) -> Exported:
    names = (example.FORMAT, example.LABEL, example.FILENAME, example.SHA256)
    # File names may hold bytes that are not UTF-8.
    kind, label, path, sha256 = (
        features[name].decode("utf-8", "backslashreplace") for name in names
    )
    columns = {
        name.removeprefix(example.COLUMNS): _plain(value)
        for name, value in features.items()
        if name.startswith(example.COLUMNS)
    }
    return Exported(features[example.ENCODED], kind, label, path, sha256, columns)


def _plain(value: Any) -> str | int | float:
    """Return a value; a float with the fewest digits that give the same float32."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    plain: str | int = value.decode("utf-8") if isinstance(value, bytes) else value
    return plain

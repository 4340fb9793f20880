"""The images that every rung of the input benchmark reads, in each of the forms to compare."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import tensorflow as tf

from components.contract.errors import DataError
from components.contract.example import ENCODED, FILENAME, LABEL_ID
from components.images.canonical import canonicalize, decode
from components.images.check import check_image, usable
from components.images.check_result import Rejected
from components.images.options import TransformConfig
from components.ingest.config import IngestConfig
from components.ingest.lookup import list_source
from components.ingest.plan.shard_plan import path_hash
from components.ingest.source.listing import check_labels
from components.records.record_index import write_indexed_shard
from components.records.shard_files import shard_path, write_index
from components.storage.fetch import read_files
from components.trainer.input.shards import Shards

_SHARDS = 16
_AT_ONCE = 64
_FACTS = "material.json"

Image = tuple[bytes, int]
"""An encoded image and its label id."""


@dataclass(frozen=True)
class Material:
    """The images below `root`, in each form: originals/, files/, jpeg/, one/, raw/."""

    root: str
    """A local folder or a gs:// URL."""
    size: int
    """Side of the canonical images, pixels."""
    labels: tuple[int, ...]
    """Label id of each image."""
    different: int
    """Distinct images among those that are read; the rest are copies."""
    digests: tuple[str, ...]
    """SHA-256 of the pixels of each canonical image."""

    @property
    def images(self) -> int:
        """Images per epoch."""
        return len(self.labels)

    def config(self, storage: str = "jpeg") -> TransformConfig:
        """Describe the canonical images."""
        return TransformConfig(size=self.size, storage=storage)  # type: ignore[arg-type]

    def files(self, folder: str) -> list[str]:
        """Name the files of `folder`, "originals" or "files", in the order of the labels."""
        return [f"{self.root}/{folder}/{number:07d}" for number in range(self.images)]

    def shards(self, storage: str) -> Shards:
        """Return the shards of "jpeg", "raw", or "one", which is JPEGs in a single shard."""
        return Shards.of_pattern(f"{self.root}/{storage}/Split-train/*")

    @classmethod
    def load(cls, folder: str, root: str) -> Material:
        """Read the description that `prepare` wrote to `folder`; the images are at `root`."""
        facts = json.loads(Path(folder, _FACTS).read_text())
        return cls(**facts | {"root": root})


def prepare(data: str, folder: str, *, size: int, images: int) -> Material:
    """Write a sample of the images at `data` into `folder`, in every form.

    Args:
        data: folder of images, as the pipeline takes it.
        folder: is emptied first.
        size: side of the canonical images, pixels.
        images: number of them; if there are fewer, they are repeated.
    """
    shutil.rmtree(folder, ignore_errors=True)
    sample = sample_images(data, images)
    config = TransformConfig(size=size)
    canonical = canonical_images(sample, config)
    decoded = decoded_images(canonical, config)
    material = Material(
        root=folder,
        size=size,
        labels=tuple(label for _, label in itertools.islice(itertools.cycle(sample), images)),
        different=len(sample),
        digests=tuple(hashlib.sha256(pixels).hexdigest() for pixels, _ in decoded),
    )
    _write_files(f"{folder}/originals", itertools.cycle(sample), images)
    _write_files(f"{folder}/files", itertools.cycle(canonical), images)
    write_shards(f"{folder}/jpeg", itertools.cycle(canonical), images)
    write_shards(f"{folder}/one", itertools.cycle(canonical), images, shards=1)
    write_shards(f"{folder}/raw", itertools.cycle(decoded), images)
    Path(folder, _FACTS).write_text(json.dumps(asdict(material)))
    return material


def sample_images(data: str, most: int) -> list[Image]:
    """Return up to `most` images, spread over the folder.

    Raises:
        DataError: no image can be read.
    """
    config = IngestConfig()
    listing = list_source(data, config)
    check_labels(listing)
    labels = {label: i for i, label in enumerate(sorted(listing.labels()))}
    mixed = sorted(listing.files, key=path_hash)
    sample = []
    for file, content in read_files(listing.root, mixed[:most], config):
        try:
            sample.append((check_image(usable(content), config).encoded, labels[file.label]))
        except Rejected:
            continue
    if not sample:
        raise DataError(f"None of the images in {data} can be read.")
    return sample


def canonical_images(sample: list[Image], config: TransformConfig) -> list[Image]:
    """Return what Transform makes of images."""
    encoded: list[bytes] = []
    for start in range(0, len(sample), _AT_ONCE):
        files = [file for file, _ in sample[start : start + _AT_ONCE]]
        encoded += canonicalize(tf.constant(files), config).numpy().tolist()
    return [(file, label) for file, (_, label) in zip(encoded, sample, strict=True)]


def decoded_images(canonical: list[Image], config: TransformConfig) -> list[Image]:
    """Return the pixels of the canonical files, so that all rungs give the same."""
    return [
        (decode(tf.constant([file]), config).numpy().tobytes(), label) for file, label in canonical
    ]


def _write_files(folder: str, images: Iterator[Image], count: int) -> None:
    os.makedirs(folder)
    for number, (file, _) in enumerate(itertools.islice(images, count)):
        Path(folder, f"{number:07d}").write_bytes(file)


def write_shards(uri: str, images: Iterator[Image], count: int, *, shards: int = _SHARDS) -> None:
    """Write shards and index as Transform does."""
    counts = {}
    for shard in range(shards):
        name = os.path.basename(shard_path(uri, "train", shard, shards))
        numbers = range(count * shard // shards, count * (shard + 1) // shards)
        # The numbers come first, so that zip takes no image that it then drops.
        examples = (
            {ENCODED: file, FILENAME: f"{number:07d}", LABEL_ID: label}
            for number, (file, label) in zip(numbers, images, strict=False)
        )
        counts[name] = write_indexed_shard(uri, "train", name, examples)
    write_index(uri, {"train": counts}, labels={})

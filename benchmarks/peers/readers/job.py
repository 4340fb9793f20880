"""What every peer gets: the same packed images, the same batch size, and a way to decode.

Imports only NumPy, as it runs in the peer's environment.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

STORAGES = {
    "jpeg": "JPEGs of the exact size, decoded",
    "window": "JPEGs of any size, a random-resized crop and a random flip",
}
LABELS, PACKED, OFFSETS = "labels.npy", "packed.bin", "offsets.npy"
ENCODED, LABEL = "image/encoded", "image/class/label"
"""Features of our own shards, which peers that know TFRecord read."""
SHUFFLE = 2048
"""Records in the buffer of a peer that reads in sequence, as our own reader has them."""

MIN_AREA, ASPECTS = 0.08, (3 / 4, 4 / 3)
"""Of the windows of `window`: the smallest area as a fraction of the image's; width by height."""
_TRIES = 10

Pixels = NDArray[np.uint8]
Batch = tuple[Any, Any]
Epoch = Callable[[], Iterable[Batch]]


@dataclass(frozen=True)
class Job:
    """What to read and how."""

    data: Path
    storage: str
    size: int
    """Side of the images of a batch, pixels."""
    batch: int
    workers: int
    """Threads or processes of the peer that decode; tf.data chooses for itself."""

    def shards(self) -> list[Path]:
        """Return our own shards of these images."""
        return sorted((self.data / "Split-train").glob("*tfrecord*"))

    def target(self, name: str) -> Path:
        """Return a path for what a peer converts, in a folder that exists."""
        path = self.data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


class Samples(Sequence[tuple[Any, int]]):
    """All images in one memory-mapped file, each with its label id."""

    def __init__(self, job: Job) -> None:
        """Map the file."""
        self.labels: NDArray[np.int64] = np.load(job.data / LABELS)
        # "c", because torch warns about read-only arrays; nothing writes to it.
        self._bytes = np.memmap(job.data / PACKED, np.uint8, "c")
        self._offsets: list[int] = np.load(job.data / OFFSETS).tolist()

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.labels)

    def __getitem__(self, index: Any) -> Any:
        """Return an encoded image and its label."""
        return self.image(index), int(self.labels[index])

    def image(self, index: int) -> Pixels:
        """Return the bytes of a JPEG without a copy."""
        return self._bytes[self._offsets[index] : self._offsets[index + 1]]


def fill_image(job: Job, data: Any, out: Pixels) -> None:
    """Decode with simplejpeg and OpenCV, for peers that leave that to the user."""
    from simplejpeg import decode_jpeg

    if job.storage == "jpeg":
        decode_jpeg(data, buffer=out)
        return
    import cv2

    image: Pixels = decode_jpeg(data)
    top, left, rows, columns = draw_window(*image.shape[:2])
    part = image[top : top + rows, left : left + columns]
    cv2.resize(part, (job.size, job.size), dst=out, interpolation=cv2.INTER_LINEAR)
    if random.random() < 0.5:
        cv2.flip(out, 1, dst=out)


def draw_window(height: int, width: int) -> tuple[int, int, int, int]:
    """Return top, left, height and width of a random window.

    Drawn as torchvision's RandomResizedCrop does: up to ten tries, then the central square.
    """
    for _ in range(_TRIES):
        area = random.uniform(MIN_AREA, 1) * height * width
        aspect = math.exp(random.uniform(*map(math.log, ASPECTS)))
        columns, rows = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < columns <= width and 0 < rows <= height:
            top, left = random.randint(0, height - rows), random.randint(0, width - columns)
            return top, left, rows, columns
    side = min(height, width)
    return (height - side) // 2, (width - side) // 2, side, side


def decode_all(job: Job, files: Sequence[Any], out: Pixels | None = None) -> Pixels:
    """Decode `files` into one array, uint8 [n, size, size, 3]."""
    images = np.empty((len(files), job.size, job.size, 3), np.uint8) if out is None else out
    for file, image in zip(files, images, strict=True):
        fill_image(job, file, image)
    return images


def read_batch(job: Job, samples: Samples, indices: Any) -> Batch:
    """Read and decode a whole batch."""
    return decode_all(job, [samples.image(index) for index in indices]), samples.labels[indices]


def shuffled_batches(job: Job, count: int) -> Iterator[NDArray[np.int64]]:
    """Yield the indices of batches for ever, each epoch in an order of its own."""
    chance = np.random.default_rng(0)
    while True:
        order = chance.permutation(count)
        yield from (order[start : start + job.batch] for start in range(0, count, job.batch))


def steps(job: Job, count: int) -> int:
    """Return the number of batches of an epoch of `count` images."""
    return math.ceil(count / job.batch)

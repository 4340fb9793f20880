"""Measures the input pipeline of one peer, in the peer's own environment; prints JSON.

    /tmp/peers/torch/bin/python -m benchmarks.peers.readers torch --data DIR --size 224 --batch 128

Run from the root of this repository; `input_versus` writes DIR. Needs only NumPy and the peer, and
simplejpeg for peers that leave decoding to the user.
"""

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module, metadata
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

LABELS, PACKED, OFFSETS = "labels.npy", "packed.bin", "offsets.npy"
_ENCODED, _LABEL = "image/encoded", "image/class/label"
# Records in the buffer of a peer that reads in sequence, as in our own reader.
_SHUFFLE = 2048
# tf.data takes the first seconds to choose its parallelism; at least an epoch is measured.
_WARM_UP, _SECONDS = 3.0, 2.0
_TICK = os.sysconf("SC_CLK_TCK")

Pixels = NDArray[np.uint8]
Batch = tuple[Any, Any]
Epoch = Callable[[], Iterable[Batch]]


@dataclass(frozen=True)
class Job:
    """What to read and how."""

    data: Path
    size: int
    """Side of the images, pixels."""
    batch: int
    workers: int
    """Threads or processes of the peer that decode; tf.data chooses for itself."""

    def shards(self) -> list[Path]:
        """Return our own shards of these images, for peers that read TFRecord."""
        return sorted((self.data / "Split-train").glob("*tfrecord*"))


class Samples:
    """All images in one memory-mapped file, and their label ids."""

    def __init__(self, job: Job) -> None:
        """Map the file."""
        self.job = job
        self.labels: NDArray[np.int64] = np.load(job.data / LABELS)
        self._bytes = np.memmap(job.data / PACKED, np.uint8, "r")
        self._offsets: list[int] = np.load(job.data / OFFSETS).tolist()

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.labels)

    def file(self, index: int) -> Pixels:
        """Return the bytes of a JPEG without a copy."""
        return self._bytes[self._offsets[index] : self._offsets[index + 1]]

    def decode(self, indices: Sequence[int], out: Pixels | None = None) -> Batch:
        """Return a batch of uint8 [n, size, size, 3] and its labels."""
        from simplejpeg import decode_jpeg

        shape = (len(indices), self.job.size, self.job.size, 3)
        images = np.empty(shape, np.uint8) if out is None else out
        for index, image in zip(indices, images, strict=True):
            decode_jpeg(self.file(index), buffer=image)
        return images, self.labels[indices]


def _as_epochs(samples: Samples, batches: Iterator[Batch]) -> Epoch:
    return partial(islice, batches, math.ceil(len(samples) / samples.job.batch))


class TorchImages:
    """A map-style dataset that makes whole batches, which DataLoader prefers."""

    def __init__(self, samples: Samples) -> None:
        """Read from `samples`."""
        self.samples = samples

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.samples)

    def __getitems__(self, indices: list[int]) -> Batch:
        """Return a batch as tensors."""
        torch: Any = import_module("torch")
        shape = (len(indices), self.samples.job.size, self.samples.job.size, 3)
        # A worker's empty tensors are in shared memory, so nothing is copied between processes.
        images = torch.empty(shape, dtype=torch.uint8)
        _, labels = self.samples.decode(indices, images.numpy())
        return images, torch.from_numpy(labels)


def _torch(job: Job) -> Epoch:
    """PyTorch's DataLoader over processes."""
    loader = import_module("torch.utils.data").DataLoader(
        TorchImages(Samples(job)),
        batch_size=job.batch,
        shuffle=True,
        num_workers=job.workers,
        collate_fn=_as_is,
        persistent_workers=True,
        prefetch_factor=4,
    )
    return lambda: loader


def _as_is(batch: Any) -> Any:
    return batch


def _spdl(job: Job) -> Epoch:
    """SPDL over threads; with simplejpeg, as `spdl.io` decodes more slowly with FFmpeg."""
    samples, chance = Samples(job), np.random.default_rng(0)

    def indices() -> Iterator[Any]:
        while True:
            order = chance.permutation(len(samples))
            yield from (
                order[start : start + job.batch] for start in range(0, len(order), job.batch)
            )

    line = (
        import_module("spdl.pipeline")
        .PipelineBuilder()
        .add_source(indices())
        .pipe(samples.decode, concurrency=job.workers)
        .add_sink(4)
        .build(num_threads=job.workers)
    )
    line.start()
    return _as_epochs(samples, iter(line))


def _tf_data(job: Job) -> Epoch:
    """tf.data as its tutorials have it: interleaved TFRecord shards, a map for each image."""
    import tensorflow as tf

    features = {_ENCODED: tf.io.FixedLenFeature([], tf.string)}
    features[_LABEL] = tf.io.FixedLenFeature([], tf.int64)

    def decode(record: Any) -> Batch:
        fields = tf.io.parse_single_example(record, features)
        return tf.io.decode_jpeg(fields[_ENCODED], channels=3), fields[_LABEL]

    parallel = {"num_parallel_calls": tf.data.AUTOTUNE, "deterministic": False}
    shards = tf.data.Dataset.from_tensor_slices([str(shard) for shard in job.shards()])
    records = shards.shuffle(len(job.shards())).interleave(
        tf.data.TFRecordDataset, cycle_length=len(job.shards()), **parallel
    )
    images = records.shuffle(_SHUFFLE).map(decode, **parallel)
    batches = images.batch(job.batch, **parallel).repeat().prefetch(tf.data.AUTOTUNE)
    return _as_epochs(Samples(job), iter(batches))


PEERS: dict[str, tuple[Callable[[Job], Epoch], str]] = {
    "torch": (_torch, "torch"),
    "spdl": (_spdl, "spdl-core"),
    "tf.data": (_tf_data, "tensorflow"),
}
"""Each peer, and the package whose version is shown."""


def main() -> None:
    """Measure one peer."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.readers")
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--data", type=Path, required=True)
    for name, default in {"--size": 224, "--batch": 128, "--workers": 2}.items():
        parser.add_argument(name, type=int, default=default)
    arguments = vars(parser.parse_args())
    make, package = PEERS[arguments.pop("peer")]
    figures = measure_epochs(make(Job(**arguments)))
    print(json.dumps({"version": metadata.version(package), **figures}), flush=True)


def measure_epochs(epoch: Epoch) -> dict[str, float]:
    """Return images per second and CPU time per image, after at least one epoch to warm up."""
    end = time.perf_counter() + _WARM_UP
    while _count(epoch) and time.perf_counter() < end:
        pass
    images, start, cpu = 0, time.perf_counter(), cpu_seconds()
    while time.perf_counter() - start < _SECONDS:
        images += _count(epoch)
    seconds, used = time.perf_counter() - start, cpu_seconds() - cpu
    return {"images_per_second": images / seconds, "cpu_microseconds": used / images * 1e6}


def cpu_seconds() -> float:
    """Return user and system time of this process and its living descendants."""
    children: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text(encoding="latin-1").rpartition(")")[2].split()
        except OSError:  # it has ended since it was listed
            continue
        pid = int(entry.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        used[pid] = (int(fields[11]) + int(fields[12])) / _TICK
    return _sum(os.getpid(), children, used)


def _sum(pid: int, children: dict[int, list[int]], used: dict[int, float]) -> float:
    return used.get(pid, 0.0) + sum(_sum(child, children, used) for child in children.get(pid, []))


def _count(epoch: Epoch) -> int:
    return sum(len(labels) for _, labels in epoch())


if __name__ == "__main__":
    main()

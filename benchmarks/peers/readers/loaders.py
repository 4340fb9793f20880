"""Peers that leave decoding to the user, here simplejpeg: PyTorch, Grain and SPDL.

Each decodes whole batches in its workers, which was fastest.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from itertools import islice
from typing import Any

from benchmarks.peers.readers.job import (
    Batch,
    Epoch,
    Job,
    Samples,
    decode_all,
    read_batch,
    shuffled_batches,
    steps,
)


class TorchImages:
    """A map-style dataset that makes whole batches, which DataLoader prefers."""

    def __init__(self, job: Job) -> None:
        """Map the images into memory."""
        self.job, self.samples = job, Samples(job)

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.samples)

    def __getitems__(self, indices: list[int]) -> Batch:
        """Return a batch of uint8 [n, size, size, 3] and its labels, as tensors."""
        torch: Any = import_module("torch")
        shape = (len(indices), self.job.size, self.job.size, 3)
        # A worker's empty tensors are in shared memory, so nothing is copied between processes.
        images = torch.empty(shape, dtype=torch.uint8)
        decode_all(self.job, [self.samples.image(index) for index in indices], images.numpy())
        return images, torch.from_numpy(self.samples.labels[indices])


def torch_epochs(job: Job) -> Epoch:
    """PyTorch's DataLoader over processes; the images in one memory-mapped file."""
    several = {"persistent_workers": True, "prefetch_factor": 4} if job.workers else {}
    loader = import_module("torch.utils.data").DataLoader(
        TorchImages(job),
        batch_size=job.batch,
        shuffle=True,
        num_workers=job.workers,
        collate_fn=_as_is,
        **several,
    )
    return lambda: loader


def _as_is(batch: Any) -> Any:
    return batch


def grain_epochs(job: Job) -> Epoch:
    """Grain over processes, or over threads if there are no workers; whole batches."""
    grain = import_module("grain")
    samples = Samples(job)
    batches = (
        grain.MapDataset.range(len(samples))
        .shuffle(seed=0)
        .batch(job.batch)
        .map(partial(read_batch, job, samples))
        .repeat()
        # Counted in batches; the default of 500 would not fit into memory.
        .to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=4))
    )
    if job.workers:
        options = grain.MultiprocessingOptions(num_workers=job.workers, per_worker_buffer_size=2)
        batches = batches.mp_prefetch(options)
    return partial(islice, iter(batches), steps(job, len(samples)))


def spdl_epochs(job: Job) -> Epoch:
    """SPDL over threads; with simplejpeg, as `spdl.io` decodes more slowly with FFmpeg."""
    pipeline = import_module("spdl.pipeline")
    samples = Samples(job)
    line = (
        pipeline.PipelineBuilder()
        .add_source(shuffled_batches(job, len(samples)))
        .pipe(partial(read_batch, job, samples), concurrency=job.workers)
        .add_sink(4)
        .build(num_threads=job.workers)
    )
    line.start()
    return partial(islice, iter(line), steps(job, len(samples)))

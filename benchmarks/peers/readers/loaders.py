"""Peers that leave decoding to the user, who takes simplejpeg.

Each decodes whole batches in its workers where it can; of the ways that were tried, the fastest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from itertools import islice
from typing import Any

from benchmarks.peers.readers.job import (
    SHARDS,
    SHUFFLE,
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
    """A map-style dataset that makes whole batches, which DataLoader prefers if it can."""

    def __init__(self, job: Job) -> None:
        """Map the images into memory."""
        self.job, self.samples = job, Samples(job)

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.samples)

    def __getitems__(self, indices: list[int]) -> Batch:
        """Return a batch of uint8 [n, size, size, 3] and its labels, as tensors."""
        torch: Any = import_module("torch")
        labels = torch.from_numpy(self.samples.labels[indices])
        if self.samples.raw is not None:
            return torch.from_numpy(self.samples.raw)[torch.tensor(indices)], labels
        shape = (len(indices), self.job.size, self.job.size, 3)
        # Empty tensors of a worker lie in shared memory: nothing is copied on the way.
        images = torch.empty(shape, dtype=torch.uint8)
        decode_all(self.job, [self.samples.image(index) for index in indices], images.numpy())
        return images, labels


def torch_epochs(job: Job) -> Epoch:
    """PyTorch's DataLoader over processes; the images in one file, mapped into memory."""
    loader = import_module("torch.utils.data").DataLoader(
        TorchImages(job),
        batch_size=job.batch,
        shuffle=True,
        num_workers=job.workers,
        collate_fn=_as_is,
        **_several(job),
    )
    return lambda: loader


def _several(job: Job) -> dict[str, Any]:
    return {"persistent_workers": True, "prefetch_factor": 4} if job.workers else {}


def _as_is(batch: Any) -> Any:
    return batch


def _collate(job: Job, samples: Sequence[Any]) -> Batch:
    """Decode the batch of a worker; a tensor, which goes to the other process by shared memory."""
    torch: Any = import_module("torch")
    files, labels = zip(*samples, strict=True)
    images = torch.empty((len(files), job.size, job.size, 3), dtype=torch.uint8)
    decode_all(job, files, images.numpy())
    return images, torch.tensor([int(label) for label in labels])


def webdataset_epochs(job: Job) -> Epoch:
    """WebDataset: tar shards in sequence, a shuffle buffer, its loader over processes."""
    wds = import_module("webdataset")
    folder = job.target(f"webdataset/{job.storage}")
    if not folder.exists():
        folder.mkdir()
        _write_tars(job, f"{folder}/%06d.tar")
    dataset = (
        wds.WebDataset(sorted(map(str, folder.iterdir())), shardshuffle=SHARDS)
        .shuffle(SHUFFLE)
        .to_tuple("bin", "cls")
        .batched(job.batch, collation_fn=partial(_collate, job))
    )
    loader = wds.WebLoader(dataset, batch_size=None, num_workers=job.workers, **_several(job))
    return lambda: loader


def _write_tars(job: Job, pattern: str) -> None:
    samples = Samples(job)
    each = -(-len(samples) // SHARDS)
    writer = import_module("webdataset").ShardWriter
    with writer(pattern, maxcount=each, encoder=False, verbose=0) as sink:
        for index, (image, label) in enumerate(samples):
            sink.write({"__key__": f"{index:08d}", "bin": image.tobytes(), "cls": b"%d" % label})


def litdata_epochs(job: Job) -> Epoch:
    """LitData: chunks of its own format, its loader over processes."""
    litdata = import_module("litdata")
    folder = job.target(f"litdata/{job.storage}")
    if not folder.exists():
        litdata.optimize(
            fn=_LitSamples(job),
            inputs=list(range(len(Samples(job)))),
            output_dir=str(folder),
            chunk_bytes="64MB",
            num_workers=1,
        )
    loader = litdata.StreamingDataLoader(
        litdata.StreamingDataset(str(folder), shuffle=True),
        batch_size=job.batch,
        num_workers=job.workers,
        collate_fn=partial(_collate, job),
        **_several(job),
    )
    return lambda: loader


class _LitSamples:
    """Makes a record of a number."""

    def __init__(self, job: Job) -> None:
        self.samples = Samples(job)

    def __call__(self, index: int) -> tuple[bytes, int]:
        image, label = self.samples[index]
        return image.tobytes(), label


def grain_epochs(job: Job) -> Epoch:
    """Grain over processes, or threads of one process if there are no workers; whole batches."""
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
    """SPDL: a pipeline of threads; simplejpeg, as `spdl.io` decodes with FFmpeg, more slowly."""
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

"""Measures this input pipeline, or the limit of this machine, on what peers read; prints JSON."""

import argparse
import functools
import itertools
import json
import random
from pathlib import Path

import numpy as np

from benchmarks.measuring.cpu import cpu_seconds
from benchmarks.measuring.limits import (
    decode_files,
    decode_jpeg,
    measure,
    on_every_core,
    process_per_core,
)
from benchmarks.peers.readers import LABELS, OFFSETS, PACKED, Epoch, Job, Samples, measure_epochs
from components.images.options import TransformConfig

OURS = {
    "ours": {"reader": "indexed", "cache": "none"},
    "ours, streamed": {"reader": "streamed", "cache": "none"},
    "ours, decoded in memory": {"reader": "indexed", "cache": "decoded"},
}
"""Contender → the options of section `input`."""
LIMIT = "limit"
_SECONDS = 2.0


def prepare(data: str, folder: str, *, size: int, images: int) -> None:
    """Write a sample of the images at `data` into a new `folder`: packed, and as our own shards."""
    from benchmarks.ladder.data import canonical_images, sample_images, write_shards

    Path(folder).mkdir(parents=True)
    _, sample = sample_images(data, images)
    stored = canonical_images(sample, _describe(size))
    write_shards(folder, itertools.cycle(stored), images)
    files, labels = zip(*itertools.islice(itertools.cycle(stored), images), strict=True)
    Path(folder, PACKED).write_bytes(b"".join(files))
    np.save(Path(folder, LABELS), np.array(labels, np.int64))
    np.save(Path(folder, OFFSETS), np.concatenate([[0], np.cumsum([len(file) for file in files])]))


def _describe(size: int) -> TransformConfig:
    """Describe the images; half chroma, as most JPEGs have it."""
    return TransformConfig(size=size, chroma="half")


def main() -> None:
    """Measure one contender."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.input_ours")
    parser.add_argument("contender", choices=[*OURS, LIMIT])
    parser.add_argument("--data", type=Path, required=True)
    for name in ("--size", "--batch"):
        parser.add_argument(name, type=int, required=True)
    arguments = vars(parser.parse_args())
    contender = arguments.pop("contender")
    job = Job(**arguments, workers=0)
    figures = _measure_limit(job) if contender == LIMIT else measure_epochs(_epochs(contender, job))
    print(json.dumps(figures))


def _epochs(contender: str, job: Job) -> Epoch:
    """Return epochs of this pipeline."""
    from benchmarks.ladder.rungs import FEATURE_SPEC
    from components.trainer.config.input import InputConfig
    from components.trainer.input.dataset import make_dataset
    from components.trainer.input.sampler import TrainingOrder
    from components.trainer.input.shards import Shards

    dataset = make_dataset(
        Shards.of_pattern(f"{job.data}/Split-train/*"),
        config=_describe(job.size),
        feature_spec=FEATURE_SPEC,
        batch_size=job.batch,
        options=InputConfig(**OURS[contender]),  # type: ignore[arg-type]
        order=TrainingOrder(seed=1),
    )
    batches, count = iter(dataset), len(Samples(job)) // job.batch
    return functools.partial(itertools.islice, batches, count)


def _measure_limit(job: Job) -> dict[str, float]:
    """Decode on every core, each in a process that does nothing else."""
    limit = functools.partial(_decode, job)
    with process_per_core() as pool:
        # Unmeasured, because processes start at different times.
        on_every_core(pool, limit)
        before = cpu_seconds()
        rate = on_every_core(pool, limit)
        used = cpu_seconds() - before
    return {"images_per_second": rate, "cpu_microseconds": used / (rate * _SECONDS) * 1e6}


def _decode(job: Job) -> float:
    files = _files(job)
    out, some = np.empty((job.batch, job.size, job.size, 3), np.uint8), min(256, len(files))
    return measure(lambda: decode_files(random.sample(files, some), out, decode_jpeg), _SECONDS)


@functools.cache
def _files(job: Job) -> list[bytes]:
    samples = Samples(job)
    return [samples.file(index).tobytes() for index in range(min(3200, len(samples)))]


if __name__ == "__main__":
    main()

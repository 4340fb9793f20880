"""Compares the input pipeline with other loaders and with the limits of this machine.

    uv run -m benchmarks.peers.input_versus --data DIR --python PEER=PATH

All contenders read the same packed JPEGs in batches of the same size; peers use two workers. Each
figure comes from a fresh process, which first reads for some seconds unmeasured; contenders take
turns. A peer (torch or spdl) is left out unless `--python` names the Python of its
environment; tf.data runs in ours.
"""

import argparse
import functools
import itertools
import json
import os
import random
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring import limits, options
from benchmarks.measuring.process import measure, take_turns
from benchmarks.measuring.results import Figures, ratio, spread_all, write_results
from benchmarks.peers.readers import (
    LABELS,
    OFFSETS,
    PACKED,
    PEERS,
    Epoch,
    Job,
    Samples,
    cpu_seconds,
    measure_epochs,
)
from components.images.options import TransformConfig

_MODULE = "benchmarks.peers.input_versus"
_HERE = ("tf.data",)
# Contender → the options of section `input`.
_OURS = {
    "ours": {"cache": "none"},
    "ours, streamed": {"reader": "streamed", "cache": "none"},
    "ours, decoded in memory": {"cache": "decoded"},
}
_LIMIT = "limit"
_SECONDS = 2.0

Results = dict[str, list[dict[str, Any]]]
"""Images per second, CPU time of an image, and the version of each process of a contender."""


def _parser() -> argparse.ArgumentParser:
    parser = options.make_parser(_MODULE, __doc__, repeats=3)
    parser.add_argument("--data", required=True, help="folder of images, as the pipeline takes it")
    options.add_counts(
        parser,
        size=(224, "side of the images, pixels"),
        batch=(128, "images per batch"),
        images=(3200, "of an epoch, at most"),
    )
    parser.add_argument("--python", action="append", default=[], type=_python, metavar="PEER=PATH")
    parser.add_argument(
        "--contenders", help="only those with one of these words in their name, a,b,…"
    )
    return parser


def _python(text: str) -> tuple[str, str]:
    """Read a peer and the Python of its environment."""
    name, _, path = text.partition("=")
    if name not in PEERS or not path:
        known = ", ".join(PEERS)
        raise argparse.ArgumentTypeError(f"{text} is not PEER=PATH with one of {known}")
    return name, path


def _compare(arguments: argparse.Namespace) -> None:
    pythons = dict.fromkeys(_HERE, sys.executable) | dict(arguments.python)
    names = options.choose([*_OURS, _LIMIT, *pythons], arguments.contenders)
    images = options.fill_batches(arguments)
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        folder = os.path.join(work, "images")
        _prepare(arguments.data, folder, images=images, size=arguments.size)
        task = {"data": folder, "batch": arguments.batch, "size": arguments.size}
        results = take_turns(
            names,
            arguments.repeats,
            lambda name: _in_a_process(name, task, pythons.get(name)),
            lambda figure: f"{figure['images_per_second']:,.0f} images/s",
        )
    versions = {name: figures[0].get("version", "") for name, figures in results.items()}
    table = _tabulate(arguments.size, arguments.batch, results, versions)
    table.show()
    write_results(_MODULE, [table], {"figures": results, "versions": versions}, arguments.json)


def _in_a_process(name: str, task: Mapping[str, Any], python: str | None) -> Any:
    """Measure a contender; peers have a Python of their own."""
    if python:
        words = [f"--{key}={value}" for key, value in task.items()]
        return measure(["-m", "benchmarks.peers.readers", name, *words], python=python)
    return measure(["-m", _MODULE, name, *map(str, task.values())])


def _tabulate(size: int, batch: int, results: Results, versions: Mapping[str, str]) -> Figures:
    """Sort by images per second."""
    title = f"JPEGs of {size} pixels, batches of {batch}"
    table = Figures(title, ("contender", "images/s", "of ours", "CPU µs per image"))
    rates = spread_all(results, "images_per_second")
    times = spread_all(results, "cpu_microseconds")
    for name, rate in sorted(rates.items(), key=lambda item: -item[1].median):
        of_ours = ratio(rate, rates["ours"]) if "ours" in rates and name != "ours" else ""
        table.add(f"{name} {versions[name]}".strip(), rate.show(), of_ours, times[name].show(1))
    return table


def _prepare(data: str, folder: str, *, size: int, images: int) -> None:
    """Write a sample of the images at `data` into a new `folder`: packed, and as our own shards."""
    from tensorflow.io import decode_jpeg, encode_jpeg

    from benchmarks.ladder.data import canonical_images, sample_images, write_shards

    Path(folder).mkdir(parents=True)
    sample = sample_images(data, images)
    # Half chroma, as most JPEGs have it.
    stored = [
        (encode_jpeg(decode_jpeg(file), quality=95).numpy(), label)
        for file, label in canonical_images(sample, TransformConfig(size=size))
    ]
    write_shards(folder, itertools.cycle(stored), images)
    files, labels = zip(*itertools.islice(itertools.cycle(stored), images), strict=True)
    Path(folder, PACKED).write_bytes(b"".join(files))
    np.save(Path(folder, LABELS), np.array(labels, np.int64))
    np.save(Path(folder, OFFSETS), np.concatenate([[0], np.cumsum([len(file) for file in files])]))


def _measure(contender: str, data: str, batch: str, size: str) -> dict[str, float]:
    """Measure this input pipeline, or the limit of this machine, in this process."""
    job = Job(Path(data), int(size), int(batch), workers=0)
    return _measure_limit(job) if contender == _LIMIT else measure_epochs(_epochs(contender, job))


def _epochs(contender: str, job: Job) -> Epoch:
    """Return epochs of this pipeline."""
    from benchmarks.ladder.rungs import FEATURE_SPEC
    from components.trainer.config.input import InputConfig
    from components.trainer.input.dataset import make_dataset
    from components.trainer.input.sampler import TrainingOrder
    from components.trainer.input.shards import Shards

    dataset = make_dataset(
        Shards.of_pattern(f"{job.data}/Split-train/*"),
        config=TransformConfig(size=job.size),
        feature_spec=FEATURE_SPEC,
        batch_size=job.batch,
        options=InputConfig(**_OURS[contender]),  # type: ignore[arg-type]
        order=TrainingOrder(seed=1),
    )
    batches, count = iter(dataset), len(Samples(job)) // job.batch
    return functools.partial(itertools.islice, batches, count)


def _measure_limit(job: Job) -> dict[str, float]:
    """Decode on every core, each in a process that does nothing else."""
    limit = functools.partial(_decode, job)
    with limits.process_per_core() as pool:
        # Unmeasured, because processes start at different times.
        limits.on_every_core(pool, limit)
        before = cpu_seconds()
        rate = limits.on_every_core(pool, limit)
        used = cpu_seconds() - before
    return {"images_per_second": rate, "cpu_microseconds": used / (rate * _SECONDS) * 1e6}


def _decode(job: Job) -> float:
    files = _files(job)
    out, some = np.empty((job.batch, job.size, job.size, 3), np.uint8), min(256, len(files))
    return limits.measure(
        lambda: limits.decode_files(random.sample(files, some), out, limits.decode_jpeg), _SECONDS
    )


@functools.cache
def _files(job: Job) -> list[bytes]:
    samples = Samples(job)
    return [samples.file(index).tobytes() for index in range(min(3200, len(samples)))]


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in (*_OURS, _LIMIT):
        print(json.dumps(_measure(*sys.argv[1:])))
    else:
        sys.exit(options.run(_parser(), _compare))

"""What an image costs in ImageStatisticsGen, and in the StatisticsGen of TFX.

`uv run -m benchmarks.record_statistics --images 6000 60000 --artifacts /data/photographs`

The photographs are random bytes behind a signature, 110 KB each. Every figure is of a process of
its own, without the imports; both executors take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.evaluation import Figures, describe, read_times
from benchmarks.measuring import options
from benchmarks.measuring.process import measure
from benchmarks.measuring.progress import Progress, announce
from benchmarks.measuring.spread import Spread, ratio
from components.contract import example

_MODULE = "benchmarks.record_statistics"
_EXECUTORS = {"ours": "ImageStatisticsGen", "tfx": "StatisticsGen of TFX"}
_SHARD_BYTES = 2**27
_PHOTOGRAPH_BYTES = 110_000

# Seconds of both executors with their imports, of a photograph in both, and of writing it.
_START, _BOTH, _WRITTEN = 40, 0.001, 0.0005


def main() -> int:
    """Write the photographs if they are not there; count them with both executors."""
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.step:
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
        print(json.dumps(_count(arguments)))
        return 0
    return options.run(parser, lambda: _compare(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = options.make_parser(_MODULE, __doc__, repeats=3)
    options.add_artifacts(parser)
    parser.add_argument(
        "--images",
        type=options.at_least_one,
        nargs="+",
        default=[6_000, 60_000],
        help="photographs, 112 KB each",
    )
    parser.add_argument("--step", choices=_EXECUTORS, help=argparse.SUPPRESS)
    return parser


def _compare(arguments: argparse.Namespace) -> None:
    announce(
        sum(
            _WRITTEN * images + arguments.repeats * (_START + _BOTH * images)
            for images in arguments.images
        )
    )
    found: dict[int, dict[str, list[Figures]]] = {images: {} for images in arguments.images}
    progress = Progress(arguments.repeats * len(arguments.images) * len(_EXECUTORS))
    for _ in range(arguments.repeats):
        for images, figures in found.items():
            folder = arguments.artifacts / f"photographs-{images}"
            if not (folder / example.INDEX_FILE).exists():
                _write_photographs(folder, images)
            for step, name in _EXECUTORS.items():
                once = measure(["-m", _MODULE, f"--step={step}", f"--artifacts={folder}"])
                figures.setdefault(name, []).append(once)
                progress.report(f"{name}, {images:,} photographs: {once['seconds']:.1f} s")
    for images, figures in found.items():
        _print(images, figures)
    options.write_json(found, arguments.json)


def _print(images: int, figures: dict[str, list[Figures]]) -> None:
    for name, of in figures.items():
        print(describe(f"{name}, {images:,} photographs", of))
    ours, tfx = (Spread.of([one["cpu"] for one in of]) for of in figures.values())
    print(f"StatisticsGen of TFX takes {ratio(tfx, ours)} the CPU time.")


def _write_photographs(folder: Path, photographs: int) -> None:
    from components.records.shard_files import open_shard, shard_path, write_index
    from components.records.tfrecord import serialize

    random = np.random.default_rng(0)
    images = [b"\xff\xd8\xff" + random.bytes(_PHOTOGRAPH_BYTES + size) for size in range(16)]
    each = _SHARD_BYTES // _PHOTOGRAPH_BYTES
    count = -(-photographs // each)
    shards = {}
    for number in range(count):
        path = shard_path(str(folder), "train", number, count)
        rows = range(number * each, min(photographs, (number + 1) * each))
        shards[os.path.basename(path)] = len(rows)
        with open_shard(path) as writer:
            for row in rows:
                writer.write(serialize(_describe(row, images[row % len(images)])))
    labels = {f"class {n:03d}": photographs // 200 for n in range(200)}
    write_index(str(folder), {"train": shards}, labels={"train": labels})


def _describe(row: int, image: bytes) -> dict[str, Any]:
    label = f"class {row % 200:03d}"
    return {
        example.ENCODED: image,
        example.FORMAT: "jpeg",
        example.HEIGHT: 300 + row % 300,
        example.WIDTH: 400 + row % 200,
        example.CHANNELS: 3,
        example.LABEL: label,
        example.FILENAME: f"{label}/{row:06d}.jpg",
        example.SHA256: f"{row:064x}",
        example.FILE_SIZE: len(image),
        example.LUMINANCE: float(row % 256),
    }


def _count(arguments: argparse.Namespace) -> dict[str, float]:
    """Run one of both executors on photographs."""
    from tfx.components.statistics_gen import executor as of_tfx
    from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
    from tfx.types import standard_artifacts

    from benchmarks.report import describe_examples
    from components.validation.statistics_gen import Executor, statistics_options
    from pipeline_def.config.config import Config

    examples = describe_examples(arguments.artifacts)
    examples.split_names = '["train"]'
    statistics = standard_artifacts.ExampleStatistics()
    statistics.uri = str(arguments.artifacts / f"statistics-{arguments.step}")
    kind = Executor if arguments.step == "ours" else of_tfx.Executor
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    wall, cpu = read_times()
    kind(BaseBeamExecutor.Context(beam_pipeline_args=Config().beam_pipeline_args)).Do(
        {"examples": [examples]},
        {"statistics": [statistics]},
        {"stats_options_json": statistics_options().to_json()},
    )
    now, cpu_now = read_times()
    return {
        "seconds": now - wall,
        "cpu": cpu_now - cpu,
        "mib_before": before,
        "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


if __name__ == "__main__":
    sys.exit(main())

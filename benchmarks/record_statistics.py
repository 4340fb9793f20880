"""What an image costs in ImageStatisticsGen, and in the StatisticsGen of TFX.

`uv run -m benchmarks.record_statistics --photographs 6000 60000 --folder /data/photographs`

The photographs are random bytes behind a signature, 110 KB each. Every figure is of a process of
its own, without the imports; both executors take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.evaluation import measure_step, read_times
from components.contract import example

_SHARD_BYTES = 2**27
_PHOTOGRAPH_BYTES = 110_000


def main() -> None:
    """Write the photographs if they are not there; count them with both executors."""
    options = _parser().parse_args()
    if options.step:
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
        print(json.dumps(_count(options)))
        return
    _compare(options)


def _parser() -> argparse.ArgumentParser:
    program = "python -m benchmarks.record_statistics"
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="112 KB for each photograph")
    parser.add_argument("--photographs", type=int, nargs="+", default=[6_000, 60_000])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--step", choices=["ours", "tfx"], help="in this process")
    return parser


def _compare(options: argparse.Namespace) -> None:
    for _ in range(options.rounds):
        for photographs in options.photographs:
            folder = options.folder / f"photographs-{photographs}"
            if not (folder / example.INDEX_FILE).exists():
                _write_photographs(folder, photographs)
            for step, name in (("ours", "ImageStatisticsGen"), ("tfx", "StatisticsGen of TFX")):
                command = ["benchmarks.record_statistics", f"--step={step}", f"--folder={folder}"]
                found = measure_step(command)
                print(
                    f"{name}, {photographs:,} photographs: {found['seconds']:.1f} s, "
                    f"{found['cpu']:.1f} CPU s, {found['mib']:,.0f} MiB, "
                    f"{found['mib'] - found['mib_before']:,.0f} more than before",
                    flush=True,
                )


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


def _count(options: argparse.Namespace) -> dict[str, float]:
    """Run one of both executors on photographs."""
    from tfx.components.statistics_gen import executor as of_tfx
    from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
    from tfx.types import standard_artifacts

    from benchmarks.report import describe_examples
    from components.validation.statistics import statistics_options
    from components.validation.statistics_gen import Executor
    from pipeline_def.config.config import Config

    examples = describe_examples(options.folder)
    examples.split_names = '["train"]'
    statistics = standard_artifacts.ExampleStatistics()
    statistics.uri = str(options.folder / f"statistics-{options.step}")
    kind = Executor if options.step == "ours" else of_tfx.Executor
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
    main()

"""Prediction from files against the model alone: what reading and checking cost.

`uv run -m benchmarks.predict --data DIR` measures, one after the other and several times, the model
asked about batches whose bytes are in memory, and `predict` on the files. The ratio of the two is
what this prints, with the CPU time of each. The model is a network with random weights, exported
as Trainer does, or a pushed one with `--model`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.measuring import options
from benchmarks.measuring.progress import Progress, announce
from benchmarks.measuring.spread import NOISE, Spread
from components.contract.errors import DataError
from components.contract.machine import process_memory
from components.images.options import FileOptions
from components.predict.config import PredictConfig
from components.predict.files import Source, count_files, find_sources
from components.predict.flow import Model, predict
from components.predict.model import Ranking, RankingModel

_MODULE = "benchmarks.predict"
_CLASSES = 10

# Of mobilenet_v2 at 224 pixels, images a second; seconds until a model is exported and loaded.
_RATE, _START = 60, 30


@dataclass(frozen=True)
class Figure:
    """One measurement."""

    images: int
    seconds: float
    cpu_seconds: float


class RecordingModel:
    """A model that keeps the batches it is asked about, and answers nothing."""

    def __init__(self) -> None:
        """Begin with no batch."""
        self.batches: list[list[bytes]] = []

    def predict(self, images: Sequence[bytes]) -> list[Ranking | str]:
        """Keep a batch."""
        self.batches.append(list(images))
        return [""] * len(images)


def main() -> int:
    """Measure, and print a table."""
    parser = _parser()
    arguments = parser.parse_args()
    return options.run(parser, lambda: _compare(arguments))


def _compare(arguments: argparse.Namespace) -> None:
    sources = find_sources([arguments.data])
    # Both ways are asked once unmeasured, and then in turn.
    announce(_START + 2 * (arguments.repeats + 1) * count_files(sources) / _RATE)
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        folder = arguments.model or _export(arguments.network, arguments.size, work)
        model = RankingModel(folder, top=3)
    config = PredictConfig(batch=arguments.batch)
    recording = RecordingModel()
    _run(sources, recording, config)
    batches = recording.batches
    if not batches:
        raise DataError(f"There is no image in {arguments.data} that could be read.")
    ways: dict[str, Callable[[], int]] = {
        "the model, of bytes in memory": lambda: sum(map(len, map(model.predict, batches))),
        "predict, of files": lambda: _run(sources, model, config),
    }
    _take_turns(ways, arguments)


def _take_turns(ways: Mapping[str, Callable[[], int]], arguments: argparse.Namespace) -> None:
    for way in ways.values():
        way()
    before = process_memory()
    figures: dict[str, list[Figure]] = {name: [] for name in ways}
    progress = Progress(arguments.repeats * len(ways))
    for _ in range(arguments.repeats):
        for name, way in ways.items():
            figures[name].append(_measure(way))
            progress.report(name)
    ratios = _print(figures, grown=process_memory() - before)
    kept = {name: [asdict(of) for of in some] for name, some in figures.items()}
    options.write_json({"figures": kept, "ratios": ratios}, arguments.json)


def _parser() -> argparse.ArgumentParser:
    parser = options.make_parser(_MODULE, __doc__, repeats=5)
    parser.add_argument("--data", required=True, help="folder of images")
    parser.add_argument("--model", help="folder of a SavedModel")
    parser.add_argument("--network", default="mobilenet_v2")
    parser.add_argument("--size", type=options.at_least_one, default=224, help="pixels")
    parser.add_argument("--batch", type=options.at_least_one, default=64, help="images per batch")
    options.add_work(parser)
    return parser


def _run(sources: list[Source], model: Model, config: PredictConfig) -> int:
    outcomes = sum(1 for _ in predict(sources, model, config, FileOptions()))
    assert outcomes == count_files(sources)
    return outcomes


def _measure(way: Callable[[], int]) -> Figure:
    started, cpu = time.perf_counter(), time.process_time()
    images = way()
    return Figure(images, time.perf_counter() - started, time.process_time() - cpu)


def _export(network: str, size: int, work: str) -> str:
    """Save a network with random weights, behind what Transform does to images."""
    import tensorflow as tf

    from components.contract.example import ENCODED
    from components.images.canonical import canonicalize
    from components.transform.config import TransformConfig
    from pipeline_def.config.model import ModelConfig
    from pipeline_def.model.networks import build_model
    from pipeline_def.serving.signatures import _make_signatures, save_whole

    config = TransformConfig(size=size)
    moments = {"mean": [127.0] * 3, "variance": [4000.0] * 3, "seed": 0}
    model = build_model(ModelConfig(name=network), size=size, classes=_CLASSES, **moments)  # type: ignore[arg-type]

    def transform(features: Any) -> dict[str, tf.Tensor]:
        return {ENCODED: canonicalize(tf.squeeze(features[ENCODED], 1), config)}

    signatures = _make_signatures(
        model,
        transform,
        labels=[b"%d" % label for label in range(_CLASSES)],
        raw_spec={},
        config=config,
        views=1,
    )
    served = tf.Module()
    served.weights = model.variables
    folder = os.path.join(work, "model")
    save_whole(served, folder, {"serving_default": signatures["serving_default"]})
    return folder


def _print(figures: dict[str, list[Figure]], *, grown: int) -> list[float]:
    """Print what was measured; return the ratio of each repeat."""
    rates = {name: [of.images / of.seconds for of in some] for name, some in figures.items()}
    for name, some in figures.items():
        cpu = statistics.median(of.cpu_seconds / of.images for of in some) * 1000
        rate, low, high = statistics.median(rates[name]), min(rates[name]), max(rates[name])
        print(
            f"{name:<32} {rate:8,.1f} images/s ({low:,.1f} to {high:,.1f}), "
            f"{cpu:.2f} ms of CPU an image"
        )
    alone, files = rates.values()
    ratios = [second / first for first, second in zip(alone, files, strict=True)]
    of = Spread.of(ratios)
    noise = "" if of.low > 1 or of.high < 1 else f", {NOISE}"
    print(
        f"ratio {of.median:.3f} ({of.low:.3f} to {of.high:.3f}){noise}; "
        f"memory grew by {grown / 2**20:,.0f} MiB in {len(ratios)} repeats"
    )
    return ratios


if __name__ == "__main__":
    sys.exit(main())

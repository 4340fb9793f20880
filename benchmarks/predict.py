"""Prediction from files against the model alone: what reading and checking cost.

`uv run -m benchmarks.predict --data DIR` measures, one after the other and several times, the model
asked about batches whose bytes are in memory, and `predict` on the files. The ratio of the two is
what this prints, with the CPU time of each. The model is a network with random weights, exported
as Trainer does, or a pushed one with `--model`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from components.contract.machine import process_memory
from components.images.file_options import FileOptions
from components.predict.config import PredictConfig
from components.predict.flow import Model, predict
from components.predict.outcome import Ranking
from components.predict.served_model import ServedModel
from components.predict.sources import Source, count_files, find_sources

_CLASSES = 10


@dataclass(frozen=True)
class Figure:
    """One measurement."""

    images: int
    seconds: float
    cpu_seconds: float


class Keeping:
    """A model that keeps the batches it is asked about, and answers nothing."""

    def __init__(self) -> None:
        """Begin with no batch."""
        self.batches: list[list[bytes]] = []

    def ask(self, images: Sequence[bytes]) -> list[Ranking | str]:
        """Keep a batch."""
        self.batches.append(list(images))
        return [""] * len(images)


def main() -> None:
    """Measure, and print a table or JSON."""
    arguments = _parser().parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder = arguments.model or _export(arguments.network, arguments.size, work)
        model = ServedModel(folder, top=3)
    config = PredictConfig(batch=arguments.batch)
    sources = find_sources([arguments.data])
    keeping = Keeping()
    _run(sources, keeping, config)
    batches = keeping.batches
    ways: dict[str, Callable[[], int]] = {
        "the model, of bytes in memory": lambda: sum(len(model.ask(batch)) for batch in batches),
        "predict, of files": lambda: _run(sources, model, config),
    }
    for way in ways.values():
        way()
    before = process_memory()
    figures: dict[str, list[Figure]] = {name: [] for name in ways}
    for _ in range(arguments.rounds):
        for name, way in ways.items():
            figures[name].append(_measure(way))
    _print(figures, grown=process_memory() - before, as_json=arguments.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.predict", description=__doc__)
    parser.add_argument("--data", required=True, help="folder of images")
    parser.add_argument("--model", help="folder of a SavedModel")
    parser.add_argument("--network", default="mobilenet_v2")
    parser.add_argument("--size", type=int, default=224, help="pixels")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="file to write")
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


def _print(figures: dict[str, list[Figure]], *, grown: int, as_json: str | None) -> None:
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
    print(
        f"ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}); "
        f"memory grew by {grown / 2**20:,.0f} MiB in {len(ratios)} rounds"
    )
    if as_json:
        kept = {name: [asdict(of) for of in some] for name, some in figures.items()}
        with open(as_json, "w", encoding="utf-8") as file:
            json.dump({"figures": kept, "ratios": ratios, "grown": grown}, file, indent=1)


if __name__ == "__main__":
    main()

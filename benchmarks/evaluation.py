"""What an image costs in the Evaluator, of few images and of many.

`uv run -m benchmarks.evaluation --images 5000 50000 --artifacts /dev/shm/evaluation`

- evaluator: two models that cost next to nothing, 1,000 classes; the step from start to verdict.
- network: a MobileNetV2 asked by the Evaluator about a shard, against the same batches from memory.

Every figure is of a process of its own; both sizes take turns. CPU seconds are user and system. The
folder of artifacts takes 16 KB for each image, and is used again by the next run.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measuring import options
from benchmarks.measuring.process import measure
from benchmarks.measuring.progress import Progress, announce
from benchmarks.measuring.spread import Spread, ratio
from components.contract import example

_MODULE = "benchmarks.evaluation"
_CLASSES = 1000
_NETWORK_SIDE = 192

# Seconds of a run with its imports, and of an image: evaluated, and written once; of the network.
_START, _IMAGE, _MADE, _NETWORK = 25, 0.0003, 0.0005, 90

Figures = dict[str, float]


def main() -> int:
    """Measure what is asked for; print a table."""
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.step:
        _run_step(arguments)
        return 0
    return options.run(parser, lambda: _measure(arguments))


def _measure(arguments: argparse.Namespace) -> None:
    wanted = {"evaluator": _compare_sizes, "network": _compare_rates}
    parts = arguments.only or list(wanted)
    each = sum(_START + _IMAGE * images for images in arguments.images)
    once = sum(_MADE * images for images in arguments.images)
    announce(
        ("evaluator" in parts) * (once + arguments.repeats * each) + ("network" in parts) * _NETWORK
    )
    options.write_json({part: wanted[part](arguments) for part in parts}, arguments.json)


def _parser() -> argparse.ArgumentParser:
    parser = options.make_parser(_MODULE, __doc__, repeats=3)
    options.add_artifacts(parser)
    parser.add_argument("--images", type=options.at_least_one, nargs="+", default=[5_000, 50_000])
    parser.add_argument("--only", choices=["evaluator", "network"], nargs="+")
    parser.add_argument("--step", choices=["network"], help=argparse.SUPPRESS)
    return parser


def _compare_sizes(arguments: argparse.Namespace) -> dict[int, list[Figures]]:
    found: dict[int, list[Figures]] = {images: [] for images in arguments.images}
    progress = Progress(arguments.repeats * len(arguments.images))
    for _ in range(arguments.repeats):
        for images, figures in found.items():
            folder = arguments.artifacts / f"evaluator-{images}"
            command = ["-m", "benchmarks.report", f"--images={images}", f"--classes={_CLASSES}"]
            command.append(f"--artifacts={folder}")
            if not (folder / "inputs" / "done").exists():
                measure([*command, "--step=inputs"])
            shutil.rmtree(folder / "evaluation", ignore_errors=True)
            figures.append(measure([*command, "--step=evaluator"]))
            progress.report(f"Evaluator, {images:,} images: {figures[-1]['seconds']:.1f} s")
    for images, figures in found.items():
        print(describe(f"Evaluator, {images:,} images", figures))
    [first, *others] = ([f["cpu"] / images for f in of] for images, of in found.items())
    for other in others:
        more = ratio(Spread.of(other), Spread.of(first))
        print(f"An image of many costs {more} the CPU time of one of few, imports included.")
    return found


def describe(name: str, figures: list[Figures]) -> str:
    """Say what repeats of a process have taken: medians, with the range of the seconds."""
    wall = Spread.of([of["seconds"] for of in figures])
    cpu, mib = (statistics.median(of[key] for of in figures) for key in ("cpu", "mib"))
    return (
        f"{name}: {wall.median:.1f} s ({wall.low:.1f} to {wall.high:.1f}), {cpu:.1f} CPU s, "
        f"{mib:,.0f} MiB"
    )


def _compare_rates(arguments: argparse.Namespace) -> Figures:
    command = ["-m", _MODULE, "--step=network", f"--artifacts={arguments.artifacts}"]
    found: Figures = measure([*command, f"--repeats={arguments.repeats}"])
    print(
        f"Network, the fastest of {arguments.repeats}: {found['alone']:.1f} images/s from memory, "
        f"{found['evaluator']:.1f} in the Evaluator, {found['evaluator'] / found['alone']:.2f}; "
        f"per CPU second {found['cpu_evaluator'] / found['cpu_alone']:.2f}; {found['mib']:,.0f} MiB"
    )
    return found


def _run_step(arguments: argparse.Namespace) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    figures = _ask_network(arguments)
    figures["mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(figures))


def read_times() -> tuple[float, float]:
    """Return the time and the CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return time.perf_counter(), used.ru_utime + used.ru_stime


def _save_network(folder: Path) -> None:
    """Save a network that is not trained, with the signatures that the Evaluator asks."""
    import tensorflow as tf
    import tf_keras

    network = tf_keras.applications.MobileNetV2(
        (_NETWORK_SIDE, _NETWORK_SIDE, 3), weights=None, classes=_CLASSES
    )
    text, number = tf.io.FixedLenFeature([], tf.string), tf.io.FixedLenFeature([], tf.int64)
    labels = tf.constant([[f"class {n:04d}" for n in range(_CLASSES)]])

    def decode(encoded: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(
            tf.io.decode_jpeg(encoded, channels=3), [_NETWORK_SIDE, _NETWORK_SIDE, 3]
        )

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image_bytes")])
    def serving_default(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"labels": tf.tile(labels, [tf.shape(image_bytes)[0], 1])}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serving_examples(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        encoded = tf.io.parse_example(examples, {example.ENCODED: text})[example.ENCODED]
        images = tf.map_fn(decode, encoded, fn_output_signature=tf.uint8)
        return {"probabilities": network(tf.cast(images, tf.float32) / 127.5 - 1, training=False)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def transform_features(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        ids: dict[str, tf.Tensor] = tf.io.parse_example(examples, {example.LABEL_ID: number})
        return ids

    served = tf.Module()
    served.weights = network.variables
    functions = (serving_default, serving_examples, transform_features)
    signatures = {function.__name__: function for function in functions}
    tf.saved_model.save(served, str(folder), signatures=signatures)


def _ask_network(arguments: argparse.Namespace) -> dict[str, float]:
    """Have the Evaluator's DoFn do a shard, and the model the same batches, in turn."""
    import tensorflow as tf

    from components.evaluation.config import EvaluationConfig
    from components.evaluation.inference import BATCH, Job, PredictShard, read_batches

    images = 6 * BATCH
    folder = arguments.artifacts / "network"
    command = ["-m", "benchmarks.report", f"--images={images}", "--classes=1"]
    if not (folder / "inputs" / "done").exists():
        measure([*command, f"--artifacts={folder}", "--step=inputs"])
    _save_network(folder / "model")
    [shard] = (folder / "inputs" / "examples" / "Split-eval").iterdir()
    slicings = EvaluationConfig().slices
    job = Job([str(folder / "model")], str(folder / "answers"), slicings, images)
    evaluator = PredictShard(job)
    evaluator.setup()
    batches = [examples for examples, _ in read_batches(str(shard))]
    model = tf.saved_model.load(str(folder / "model"))
    ask = model.signatures["serving_examples"]
    ask(examples=batches[0])
    spent: dict[str, list[tuple[float, float]]] = {"alone": [], "evaluator": []}
    for _ in range(arguments.repeats):
        spent["alone"].append(_spend(ask(examples=of)["probabilities"].numpy() for of in batches))
        spent["evaluator"].append(_spend(evaluator.process(str(shard))))
    wall, cpu = ({name: min(s[i] for s in of) for name, of in spent.items()} for i in (0, 1))
    rates = {name: images / seconds for name, seconds in wall.items()}
    return rates | {f"cpu_{name}": images / seconds for name, seconds in cpu.items()}


def _spend(work: Iterator[Any]) -> tuple[float, float]:
    """Return the seconds and the CPU seconds that it takes to go through `work`."""
    before = read_times()
    for _ in work:
        pass
    wall, cpu = (now - then for now, then in zip(read_times(), before, strict=True))
    return wall, cpu


if __name__ == "__main__":
    sys.exit(main())

"""What an image costs in the Evaluator, of few images and of many.

`uv run -m benchmarks.evaluation --images 5000 50000 --folder /dev/shm/evaluation`

- evaluator: two models that cost next to nothing, 1,000 classes; the step from start to verdict.
- network: a MobileNetV2 asked by the Evaluator about a shard, against the same batches from memory.

Every figure is of a process of its own; rounds alternate. CPU seconds are user and system. The
folder takes 16 KB for each image.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from components.contract import example

_CLASSES = 1000
_NETWORK_SIDE = 192


def main() -> None:
    """Run what is asked for, a line for each measurement."""
    options = _parser().parse_args()
    if options.step:
        _run_step(options)
        return
    wanted = {"evaluator": _compare_sizes, "network": _compare_rates}
    for name in options.only or wanted:
        wanted[name](options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evaluation", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--images", type=int, nargs="+", default=[5_000, 50_000])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", choices=["evaluator", "network"], nargs="+")
    parser.add_argument("--step", choices=["network"], help="in this process")
    return parser


def measure_step(command: Sequence[str]) -> dict[str, float]:
    """Run a step in a fresh process; return what it printed last."""
    done = subprocess.run(
        [sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True, check=True
    )
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _compare_sizes(options: argparse.Namespace) -> None:
    for _ in range(options.rounds):
        for images in options.images:
            folder = options.folder / f"evaluator-{images}"
            command = ["benchmarks.report", f"--images={images}", f"--classes={_CLASSES}"]
            command.append(f"--folder={folder}")
            if not (folder / "inputs" / "done").exists():
                measure_step([*command, "--step=inputs"])
            shutil.rmtree(folder / "evaluation", ignore_errors=True)
            found = measure_step([*command, "--step=evaluator"])
            print(
                f"Evaluator, {images:,} images: {found['seconds']:.1f} s, "
                f"{found['cpu']:.1f} CPU s with imports, {found['mib']:,.0f} MiB",
                flush=True,
            )


def _compare_rates(options: argparse.Namespace) -> None:
    command = ["benchmarks.evaluation", "--step=network", f"--folder={options.folder}"]
    found = measure_step([*command, f"--rounds={options.rounds}"])
    print(
        f"Network: {found['alone']:.1f} images/s from memory, {found['evaluator']:.1f} in the "
        f"Evaluator, {found['evaluator'] / found['alone']:.2f}; per CPU second "
        f"{found['cpu_evaluator'] / found['cpu_alone']:.2f}; {found['mib']:,.0f} MiB",
        flush=True,
    )


def _run_step(options: argparse.Namespace) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    figures = _ask_network(options)
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


def _ask_network(options: argparse.Namespace) -> dict[str, float]:
    """Have the Evaluator's DoFn do a shard, and the model the same batches, in turn."""
    import tensorflow as tf

    from components.evaluation.answering.example_batches import BATCH, read_batches
    from components.evaluation.answering.shard_answers import AnswerShard, Job
    from components.evaluation.config import EvaluationConfig

    images = 6 * BATCH
    folder = options.folder / "network"
    command = ["benchmarks.report", f"--images={images}", "--classes=1", f"--folder={folder}"]
    if not (folder / "inputs" / "done").exists():
        measure_step([*command, "--step=inputs"])
    _save_network(folder / "model")
    [shard] = (folder / "inputs" / "examples" / "Split-eval").iterdir()
    slicings = EvaluationConfig().slices
    job = Job([str(folder / "model")], str(folder / "answers"), slicings, images)
    evaluator = AnswerShard(job)
    evaluator.setup()
    batches = [examples for examples, _ in read_batches(str(shard))]
    model = tf.saved_model.load(str(folder / "model"))
    ask = model.signatures["serving_examples"]
    ask(examples=batches[0])
    spent: dict[str, list[tuple[float, float]]] = {"alone": [], "evaluator": []}
    for _ in range(options.rounds):
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
    main()

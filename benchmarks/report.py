"""Time and memory of ImageReport, and of the Evaluator before it, for many images and classes.

`uv run -m benchmarks.report --images 50000 --classes 1000 --artifacts /dev/shm/report`

The artifacts of the other steps are made up: noisy pictures, answers that are mostly right, from a
model that looks at the labels, not at the images. Each step runs as a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg

from benchmarks.measuring import options
from benchmarks.measuring.process import measure
from benchmarks.measuring.progress import Progress, announce
from benchmarks.measuring.spread import Spread
from components.contract import example

_MODULE = "benchmarks.report"
_DISTINCT_PICTURES = 64
_SIDE = 192
_TRAINING_EACH = 5

# Seconds of the imports of a step; of an image in the Evaluator and before it, and in the report.
_START, _EVALUATED, _REPORTED = 15, 0.0008, 0.0004


def main() -> int:
    """Make the artifacts if they are not there, run the steps, print figures."""
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.step:
        _run_step(arguments)
        return 0
    return options.run(parser, lambda: _measure_steps(arguments))


def _measure_steps(arguments: argparse.Namespace) -> None:
    is_evaluated = (arguments.artifacts / "evaluation" / "predictions.parquet").exists()
    once = 0 if is_evaluated else _START + _EVALUATED * arguments.images
    announce(once + arguments.repeats * (_START + _REPORTED * arguments.images))
    found: dict[str, Any] = {}
    if not (arguments.artifacts / "inputs" / "done").exists():
        _measure(arguments, "inputs")
    if not is_evaluated:
        found["evaluator"] = _measure(arguments, "evaluator")
        print("Evaluator, once: {seconds:.0f} s, {mib:,.0f} MiB".format(**found["evaluator"]))
    progress = Progress(arguments.repeats)
    found["report"] = []
    for _ in range(arguments.repeats):
        found["report"].append(_measure(arguments, "report"))
        progress.report(f"ImageReport: {found['report'][-1]['seconds']:.1f} s")
    wall = Spread.of([figures["seconds"] for figures in found["report"]])
    most = max(figures["mib"] for figures in found["report"])
    print(
        f"ImageReport: {wall.median:.1f} s ({wall.low:.1f} to {wall.high:.1f}), {most:,.0f} MiB, "
        f"page {found['report'][0]['page_mb']:.2f} MB"
    )
    options.write_json(found, arguments.json)


def _parser() -> argparse.ArgumentParser:
    parser = options.make_parser(_MODULE, __doc__, repeats=3)
    options.add_artifacts(parser)
    parser.add_argument("--images", type=options.at_least_one, default=50_000)
    parser.add_argument("--classes", type=options.at_least_one, default=1_000)
    parser.add_argument("--step", choices=["inputs", "evaluator", "report"], help=argparse.SUPPRESS)
    return parser


def _measure(arguments: argparse.Namespace, step: str) -> dict[str, float]:
    """Run a step in a fresh process; return what it printed last."""
    command = ["-m", _MODULE, f"--step={step}"]
    for name in ("images", "classes", "artifacts"):
        command += [f"--{name}", str(getattr(arguments, name))]
    figures: dict[str, float] = measure(command)
    return figures


def _run_step(arguments: argparse.Namespace) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    work = {"inputs": _make_inputs, "evaluator": _evaluate, "report": _report}[arguments.step]
    figures = work(arguments)
    used = resource.getrusage(resource.RUSAGE_SELF)
    figures["cpu"] = used.ru_utime + used.ru_stime
    figures["mib"] = used.ru_maxrss / 1024
    print(json.dumps(figures))


def _make_pictures() -> list[bytes]:
    random = np.random.default_rng(0)
    coarse = random.integers(0, 255, (_DISTINCT_PICTURES, 12, 12, 3)).astype(np.uint8)
    pixels = coarse.repeat(_SIDE // 12, axis=1).repeat(_SIDE // 12, axis=2)
    return [simplejpeg.encode_jpeg(np.ascontiguousarray(image), quality=90) for image in pixels]


def _label(number: int) -> str:
    return f"class {number:04d}"


def _records(images: int, classes: int) -> Iterator[dict[str, Any]]:
    pictures = _make_pictures()
    for number in range(images):
        label = _label(number % classes)
        yield {
            example.ENCODED: pictures[number % len(pictures)],
            example.FORMAT: b"jpeg",
            example.HEIGHT: _SIDE,
            example.WIDTH: _SIDE,
            example.LABEL: label.encode(),
            example.LABEL_ID: number % classes,
            example.FILENAME: f"{label}/{number:06d}.jpg".encode(),
            example.LUMINANCE: float(number % 256),
        }


def _make_inputs(arguments: argparse.Namespace) -> dict[str, float]:
    """Write what the steps before the Evaluator would have written."""
    from components.records.record_index import write_indexed_shard
    from components.records.shard_files import write_index

    folder, shard = arguments.artifacts / "inputs", "data_tfrecord-00000-of-00001"
    counts = {}
    for name, split, images in (
        ("examples", "eval", arguments.images),
        ("transformed", "train", _TRAINING_EACH * arguments.classes),
    ):
        uri = str(folder / name)
        records = _records(images, arguments.classes)
        counts[split] = write_indexed_shard(uri, split, shard, records)
        labels = {
            part: {_label(n): images // arguments.classes for n in range(arguments.classes)}
            for part in ("train", "eval")
        }
        write_index(uri, {split: {shard: counts[split]}}, labels=labels)
    _write_findings(folder / "rejects")
    _write_training(folder / "model_run")
    (folder / "done").touch()
    return {}


def _write_findings(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rejects = [
        {"path": f"a/{n}.jpg", "category": "truncated", "reason": "ends early"} for n in range(5000)
    ]
    same = [
        {
            "sha256": f"{n:064x}",
            "paths": [f"a/{n}.jpg", f"b/{n}.jpg"],
            "labels": ["a", "b"] if n % 2 else ["a"],
            "splits": ["train"],
        }
        for n in range(5000)
    ]
    for name, lines in (("rejects", rejects), ("duplicates", same), ("skipped", [])):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text)
    counts = {"files": 60_000, "examples": 55_000, "rejected": 5000, "skipped": 0}
    more = {"duplicates": 5000, "label_conflicts": 2500, "in_several_splits": 0}
    kinds = {"rejected_by_category": {"truncated": 5000}, "skipped_by_reason": {}}
    (folder / "summary.json").write_text(json.dumps({**counts, **more, **kinds}))


def _write_training(folder: Path) -> None:
    from dataclasses import asdict

    from components.transform.config import TransformConfig
    from pipeline_def.config.config import Config

    config = Config(transform=TransformConfig(size=_SIDE))
    sections = ("transform", "input", "augmentation", "model", "training")
    falling = [1 / (1 + epoch) for epoch in range(90)]
    names = ("loss", "val_loss", "accuracy", "val_accuracy", "images_per_second")
    history = {**dict.fromkeys(names, falling), "input_wait_fraction": falling}
    facts = {
        "started": "2026-01-01T00:00:00+00:00",
        "seconds": 3600.0,
        "config": {name: asdict(getattr(config, name)) for name in sections},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "history.json").write_text(json.dumps(history))
    (folder / "training.json").write_text(json.dumps(facts))


def _artifact(kind: Any, uri: Path, **texts: str) -> Any:
    artifact = kind()
    artifact.uri = str(uri)
    for name, value in texts.items():
        artifact.set_string_custom_property(name, value)
    return artifact


def describe_examples(folder: Path) -> Any:
    """Return the artifact of the examples in a folder, with the splits train and eval."""
    from tfx.components.util import examples_utils
    from tfx.proto import example_gen_pb2
    from tfx.types import standard_artifacts

    examples = _artifact(standard_artifacts.Examples, folder, folder="/nowhere", ingest="{}")
    examples.split_names = '["train","eval"]'
    examples_utils.set_payload_format(examples, example_gen_pb2.FORMAT_TF_EXAMPLE)
    examples_utils.set_file_format(examples, "tfrecords_gzip")
    return examples


def _save_model(folder: Path, classes: int, seed: int) -> Any:
    """Save a model that answers with the label in the example, and noise."""
    import tensorflow as tf
    from tfx.types import standard_artifacts

    labels = [_label(number).encode() for number in range(classes)]
    image = tf.TensorSpec([None], tf.string, name="image_bytes")
    examples = tf.TensorSpec([None], tf.string, name="examples")

    @tf.function(input_signature=[image], autograph=False)
    def serving_default(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"labels": tf.tile(tf.constant([labels]), [tf.shape(image_bytes)[0], 1])}

    def read_ids(serialized: tf.Tensor) -> tf.Tensor:
        spec = {example.LABEL_ID: tf.io.FixedLenFeature([], tf.int64)}
        return tf.io.parse_example(serialized, spec)[example.LABEL_ID]

    @tf.function(input_signature=[examples], autograph=False)
    def serving_examples(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        ids = read_ids(examples)
        start = tf.strings.to_hash_bucket_fast(examples[0], 2**30)
        noise = tf.random.stateless_normal([tf.size(ids), classes], [seed, start])
        return {"probabilities": tf.nn.softmax(noise * 2 + tf.one_hot(ids, classes) * 7)}

    @tf.function(input_signature=[examples], autograph=False)
    def transform_features(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        return {example.LABEL_ID: read_ids(examples)}

    functions = (serving_default, serving_examples, transform_features)
    module = tf.Module()
    signatures = {function.__name__: function for function in functions}
    tf.saved_model.save(module, str(folder / "Format-Serving"), signatures=signatures)
    return _artifact(standard_artifacts.Model, folder, version="1")


def _evaluate(arguments: argparse.Namespace) -> dict[str, float]:
    """Run the Evaluator against a model in use."""
    from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
    from tfx.types import standard_artifacts

    from components.contract.configuration import to_json
    from components.contract.properties import FOUND_PROPERTY
    from components.evaluation.executor import Executor
    from pipeline_def.config.config import Config

    config = Config()
    model, baseline = (
        _save_model(arguments.artifacts / name, arguments.classes, seed)
        for seed, name in enumerate(("model", "baseline"))
    )
    baseline.set_int_custom_property(FOUND_PROPERTY, 1)
    evaluation = _artifact(standard_artifacts.ModelEvaluation, arguments.artifacts / "evaluation")
    blessing = _artifact(standard_artifacts.ModelBlessing, arguments.artifacts / "blessing")
    started = time.perf_counter()
    Executor(BaseBeamExecutor.Context(beam_pipeline_args=config.beam_pipeline_args)).Do(
        {
            "examples": [describe_examples(arguments.artifacts / "inputs" / "examples")],
            "model": [model],
            "baseline_model": [baseline],
        },
        {"evaluation": [evaluation], "blessing": [blessing]},
        {"config": to_json(config.evaluation)},
    )
    return {"seconds": time.perf_counter() - started}


def _report(arguments: argparse.Namespace) -> dict[str, float]:
    """Run ImageReport on what the Evaluator wrote."""
    from tfx.types import standard_artifacts

    from components.contract import artifacts as ui_artifacts
    from components.contract.properties import MAJORITY_PROPERTY
    from components.report.executor import Executor

    folder, inputs = arguments.artifacts, arguments.artifacts / "inputs"
    evaluation = _artifact(standard_artifacts.ModelEvaluation, folder / "evaluation", split="eval")
    evaluation.set_float_custom_property(MAJORITY_PROPERTY, 1 / arguments.classes)
    anomalies = _artifact(standard_artifacts.ExampleAnomalies, inputs / "anomalies")
    anomalies.split_names = "[]"
    given = {
        "examples": describe_examples(inputs / "examples"),
        "rejects": _artifact(standard_artifacts.Examples, inputs / "rejects"),
        "anomalies": anomalies,
        "transformed_examples": describe_examples(inputs / "transformed"),
        "model_run": _artifact(standard_artifacts.ModelRun, inputs / "model_run"),
        "baseline": _artifact(standard_artifacts.Model, folder / "baseline", version="1"),
        "evaluation": evaluation,
    }
    made = {
        "html": _artifact(ui_artifacts.Html, folder / "report.html"),
        "metrics": _artifact(ui_artifacts.Metrics, folder / "metrics.json"),
        "classification": ui_artifacts.ClassificationMetrics(),
        "card": _artifact(ui_artifacts.Markdown, folder / "card.md"),
    }
    started = time.perf_counter()
    Executor().Do(
        {name: [artifact] for name, artifact in given.items()},
        {name: [artifact] for name, artifact in made.items()},
        {"pipeline": "benchmark", "code": "", "preview_fn": "pipeline_def.data.preview.preview"},
    )
    seconds = time.perf_counter() - started
    size = (folder / "report.html").stat().st_size
    return {"seconds": seconds, "page_mb": size / 1e6}


if __name__ == "__main__":
    sys.exit(main())

"""Measures the exports of a model in other formats on every image of the evaluated split."""

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from components.contract.artifact_files import open_file, read_json
from components.contract.confidence import Interval
from components.contract.configuration import from_dict
from components.contract.example import ENCODED, FILENAME, decode_text
from components.contract.model_files import FORMATS_FOLDER, MANIFEST_FILE, ONNX, format_file
from components.host.machine import available_cpus, require_formats
from components.images.canonical import canonicalize, decode, decode_upright
from components.images.options import TransformConfig
from components.images.upright import read_orientations
from components.metrics.evaluation_files import FormatResult
from components.metrics.predictions import Evaluated, Predictions
from components.metrics.proof import AccuracyChange
from components.records.shard_files import list_shards
from components.records.tfrecord import without_tuning

_AHEAD = 2

_Run = Callable[[Any], Any]
"""uint8 [height, width, 3] → probabilities [classes]."""


def measure_formats(
    model_uri: str, examples_uri: str, split: str, read: Callable[[], Evaluated], *, max_drop: float
) -> list[FormatResult]:
    """Measure the exports that Trainer wrote, if any."""
    folder = os.path.join(model_uri, FORMATS_FOLDER)
    try:
        manifest = read_json(os.path.join(folder, MANIFEST_FILE))
    except FileNotFoundError:
        return []
    form, failed = from_dict(TransformConfig, manifest["form"]), manifest["failed"]
    rejected = [
        FormatResult(kind, reason=f"conversion failed: {why}") for kind, why in failed.items()
    ]
    kinds = [kind for kind in manifest["kinds"] if kind not in failed]
    if not kinds:
        return rejected
    require_formats(kinds)
    model = read()
    rows = {name: row for row, name in enumerate(model.filenames)}
    versions = [_Version(kind, folder, model.candidate) for kind in kinds]
    for name, pixels, seen in _read_images(examples_uri, split, form):
        for version in versions:
            version.predict(rows[name], pixels if version.kind == ONNX else seen)
    return [*(version.compare(max_drop) for version in versions), *rejected]


def _read_images(
    examples_uri: str, split: str, form: TransformConfig
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name of each image, its pixels, and what the model sees of it."""
    features = {name: tf.io.FixedLenFeature([], tf.string) for name in (FILENAME, ENCODED)}

    def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        parsed = tf.io.parse_single_example(record, features)
        files = parsed[ENCODED][tf.newaxis]
        pixels, _ = decode_upright(files[0], read_orientations(files)[0])
        return parsed[FILENAME], pixels, decode(canonicalize(files, form), form)[0]

    records = tf.data.TFRecordDataset(list_shards(examples_uri, split))
    decoded = records.map(parse, available_cpus(), deterministic=True).prefetch(_AHEAD)
    for name, pixels, seen in without_tuning(decoded).as_numpy_iterator():
        yield decode_text(name), pixels, seen


class _Version:
    """An export, run by the runtime of its format, and what it answered so far."""

    def __init__(self, kind: str, folder: str, model: Predictions) -> None:
        """Load an export of `model`, the SavedModel, from `folder`."""
        with open_file(os.path.join(folder, format_file(kind)), "rb") as file:
            content = file.read()
        self.kind, self.bytes, self.model = kind, len(content), model
        self.run = _load_onnx(content) if kind == ONNX else _load_lite(content)
        examples = len(model.ids)
        # The most probable column, and the largest difference of a probability, [examples].
        self.columns, self.differences = np.full(examples, -1), np.zeros(examples)
        self.seconds = 0.0

    def predict(self, row: int, pixels: Any) -> None:
        """Record the answer for an image, and the time taken."""
        started = time.perf_counter()
        probabilities = self.run(pixels)
        self.seconds += time.perf_counter() - started
        self.columns[row] = probabilities.argmax()
        self.differences[row] = np.abs(probabilities - self.model.probabilities[row]).max()

    def compare(self, max_drop: float) -> FormatResult:
        """Compare its answers with those of the SavedModel."""
        change = AccuracyChange.of(self.model.stats.right, self.columns == self.model.ids)
        drop = change.before - change.after
        lost = f"accuracy is {drop:.3f} below that of the model; at most {max_drop:g} is allowed"
        return FormatResult(
            kind=self.kind,
            bytes=self.bytes,
            accuracy=change.after,
            drop=drop,
            interval=Interval(-change.interval.high, -change.interval.low),
            agreement=float(np.mean(self.columns == self.model.probabilities.argmax(axis=1))),
            difference=float(self.differences.max()),
            images_per_second=len(self.columns) / self.seconds if self.seconds else 0.0,
            # Counts on the same images: exact, apart from the rounding of the quotients.
            reason=lost if drop > max_drop + 1e-9 else "",
        )


def _load_onnx(content: bytes) -> _Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])
    [taken] = session.get_inputs()
    return lambda pixels: session.run(["probabilities"], {taken.name: pixels[np.newaxis]})[0][0]


def _load_lite(content: bytes) -> _Run:
    # Several threads spin while they wait for each other: two threads on busy cores took 100 ms for
    # an image of 32 pixels.
    interpreter = tf.lite.Interpreter(model_content=content, num_threads=1)
    [taken] = interpreter.get_input_details()
    [given] = interpreter.get_output_details()
    interpreter.resize_tensor_input(taken["index"], [1, *taken["shape_signature"][1:]])
    interpreter.allocate_tensors()

    def run(pixels: Any) -> Any:
        interpreter.set_tensor(taken["index"], pixels[np.newaxis])
        interpreter.invoke()
        return interpreter.get_tensor(given["index"])[0]

    return run

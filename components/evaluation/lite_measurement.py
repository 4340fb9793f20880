"""Measures the small versions of a model on every image of the evaluated split."""

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from components.contract.configuration import from_dict
from components.contract.example import ENCODED, FILENAME
from components.contract.model_files import LITE_FOLDER, MANIFEST_FILE, lite_file
from components.evaluation.metrics.predictions import Evaluated
from components.evaluation.slices import decode_text
from components.evaluation.verdict import LiteResult
from components.images.canonical import canonicalize, decode
from components.images.options import TransformConfig
from components.records.shard_files import list_shards
from components.storage.artifact_files import open_file, read_json

_BATCH = 64


def measure_lite(
    model_uri: str,
    examples_uri: str,
    split: str,
    read: Callable[[], Evaluated],
    *,
    max_drop: float,
) -> list[LiteResult]:
    """Measure the small versions that Trainer exported, if any."""
    folder = os.path.join(model_uri, LITE_FOLDER)
    try:
        manifest = read_json(os.path.join(folder, MANIFEST_FILE))
    except FileNotFoundError:
        return []
    form, failed = from_dict(TransformConfig, manifest["form"]), manifest["failed"]
    versions = [
        _Version(kind, os.path.join(folder, lite_file(kind)))
        for kind in manifest["kinds"]
        if kind not in failed
    ]
    for name, image in _read_images(examples_uri, split, form) if versions else ():
        for version in versions:
            version.predict(name, image)
    rejected = [
        LiteResult(kind, reason=f"conversion failed: {why}") for kind, why in failed.items()
    ]
    if not versions:
        return rejected
    evaluated = read()
    return [*(version.compare(evaluated, max_drop) for version in versions), *rejected]


def _read_images(examples_uri: str, split: str, form: TransformConfig) -> Iterator[tuple[str, Any]]:
    """Yield the name and the pixels of each image, uint8, as the model sees them."""
    features = {name: tf.io.FixedLenFeature([], tf.string) for name in (FILENAME, ENCODED)}

    def parse(records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        parsed = tf.io.parse_example(records, features)
        return parsed[FILENAME], decode(canonicalize(parsed[ENCODED], form), form)

    records = tf.data.TFRecordDataset(list_shards(examples_uri, split)).batch(_BATCH)
    for names, images in records.map(parse).prefetch(1).as_numpy_iterator():
        yield from zip(map(decode_text, names), images, strict=True)


class _Version:
    """A small version, run by LiteRT."""

    def __init__(self, kind: str, path: str) -> None:
        self._kind = kind
        with open_file(path, "rb") as file:
            content = file.read()
        self._bytes = len(content)
        # Several threads spin while they wait for each other: two threads on busy cores took 100 ms
        # for an image of 32 pixels.
        self._interpreter = tf.lite.Interpreter(model_content=content, num_threads=1)
        [taken], [given] = (
            self._interpreter.get_input_details(),
            self._interpreter.get_output_details(),
        )
        self._input, self._output = taken["index"], given["index"]
        self._interpreter.resize_tensor_input(self._input, [1, *taken["shape_signature"][1:]])
        self._interpreter.allocate_tensors()
        self._columns: dict[str, int] = {}
        self._seconds = 0.0

    def predict(self, name: str, image: Any) -> None:
        """Record the most probable column for an image, and the time taken."""
        started = time.perf_counter()
        self._interpreter.set_tensor(self._input, image[np.newaxis])
        self._interpreter.invoke()
        [probabilities] = self._interpreter.get_tensor(self._output)
        self._seconds += time.perf_counter() - started
        self._columns[name] = int(probabilities.argmax())

    def compare(self, evaluated: Evaluated, max_drop: float) -> LiteResult:
        """Compare its predictions with those of the model."""
        model = evaluated.candidate
        columns = np.array([self._columns[name] for name in evaluated.filenames])
        accuracy = float(np.mean(columns == model.ids))
        drop = float(np.mean(model.stats.right)) - accuracy
        lost = f"accuracy is {drop:.3f} below that of the model; at most {max_drop:g} is allowed"
        return LiteResult(
            kind=self._kind,
            bytes=self._bytes,
            accuracy=accuracy,
            drop=drop,
            agreement=float(np.mean(columns == model.probabilities.argmax(axis=1))),
            images_per_second=len(columns) / self._seconds,
            # Counts on the same images: exact, apart from the rounding of the quotients.
            reason=lost if drop > max_drop + 1e-9 else "",
        )

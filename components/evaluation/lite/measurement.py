"""Measures the small versions of a model on every image of the split that judges it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from components.contract.configuration import from_dict
from components.contract.example import ENCODED, FILENAME
from components.contract.model_files import LITE_FOLDER, MANIFEST_FILE, lite_file
from components.evaluation.lite.result import LiteResult
from components.evaluation.metrics.predictions import Evaluated
from components.evaluation.slices import decode_text
from components.images.canonical import canonicalize, decode
from components.records.shard_files import list_shards
from components.storage.artifact_files import open_file

_BATCH = 64


@dataclass(frozen=True)
class StoredForm:
    """How Transform brings images to size; the fields of `TransformConfig`."""

    size: int
    fit: Literal["crop", "stretch", "letterbox"]
    margin: int
    storage: Literal["jpeg", "png", "raw", "originals"]
    quality: int
    chroma: Literal["full", "half"]

    @property
    def seen_size(self) -> int:
        """Side of the images that the model sees, pixels."""
        return self.size

    @property
    def stored_size(self) -> int:
        """Side of the stored images, pixels."""
        return self.size + self.margin


def measure_lite(
    model_uri: str,
    examples_uri: str,
    split: str,
    read: Callable[[], Evaluated],
    *,
    max_drop: float,
) -> list[LiteResult]:
    """Measure the small versions that Trainer has made, if any.

    Args:
        model_uri: of the artifact of the model.
        examples_uri: of ImageExampleGen's.
        split: that judges.
        read: returns what the model has answered on it; called if there is any.
        max_drop: by which the accuracy of a version may lie below that of the model.
    """
    folder = os.path.join(model_uri, LITE_FOLDER)
    try:
        with open_file(os.path.join(folder, MANIFEST_FILE)) as file:
            manifest = json.loads(file.read())
    except FileNotFoundError:
        return []
    form, failed = from_dict(StoredForm, manifest["form"]), manifest["failed"]
    versions = [
        _Version(kind, os.path.join(folder, lite_file(kind)))
        for kind in manifest["kinds"]
        if kind not in failed
    ]
    for name, image in _read_images(examples_uri, split, form) if versions else ():
        for version in versions:
            version.answer(name, image)
    refused = [LiteResult(kind, reason=f"it cannot be made: {why}") for kind, why in failed.items()]
    if not versions:
        return refused
    evaluated = read()
    return [*(version.judge(evaluated, max_drop) for version in versions), *refused]


def _read_images(examples_uri: str, split: str, form: StoredForm) -> Iterator[tuple[str, Any]]:
    """Yield the name of each image, and its pixels as the model sees them, uint8."""
    features = {name: tf.io.FixedLenFeature([], tf.string) for name in (FILENAME, ENCODED)}

    def parse(records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        parsed = tf.io.parse_example(records, features)
        return parsed[FILENAME], decode(canonicalize(parsed[ENCODED], form), form)

    records = tf.data.TFRecordDataset(list_shards(examples_uri, split)).batch(_BATCH)
    for names, images in records.map(parse).prefetch(1).as_numpy_iterator():
        yield from zip(map(decode_text, names), images, strict=True)


class _Version:
    """One small version, as LiteRT runs it."""

    def __init__(self, kind: str, path: str) -> None:
        self._kind = kind
        with open_file(path, "rb") as file:
            content = file.read()
        self._bytes = len(content)
        # Several threads wait for each other by spinning: two that shared their cores with other
        # work took 100 ms for an image of 32 pixels.
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

    def answer(self, name: str, image: Any) -> None:
        """Note the most probable column for an image, and the time that it took."""
        started = time.perf_counter()
        self._interpreter.set_tensor(self._input, image[np.newaxis])
        self._interpreter.invoke()
        [probabilities] = self._interpreter.get_tensor(self._output)
        self._seconds += time.perf_counter() - started
        self._columns[name] = int(probabilities.argmax())

    def judge(self, evaluated: Evaluated, max_drop: float) -> LiteResult:
        """Compare its answers with those of the model."""
        model = evaluated.candidate
        columns = np.array([self._columns[name] for name in evaluated.filenames])
        accuracy = float(np.mean(columns == model.ids))
        drop = float(np.mean(model.answers.right)) - accuracy
        lost = f"its accuracy is {drop:.3f} below that of the model, more than {max_drop:g}"
        return LiteResult(
            kind=self._kind,
            bytes=self._bytes,
            accuracy=accuracy,
            drop=drop,
            agreement=float(np.mean(columns == model.probabilities.argmax(axis=1))),
            images_per_second=len(columns) / self._seconds,
            # Of two counts on the same images: exact but for the rounding of their quotients.
            reason=lost if drop > max_drop + 1e-9 else "",
        )

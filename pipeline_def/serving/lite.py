"""Small versions of the exported model: pixels in, probabilities out, by LiteRT's own operations.

LiteRT has no operation that decodes images and none for text: what Transform does stays with the
application, and the labels lie in a file beside.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from components.contract.configuration import to_dict
from components.contract.model_files import LABELS_FILE, MANIFEST_FILE, LiteKind, lite_file
from components.transform.config import TransformConfig
from pipeline_def.serving import lite_process
from pipeline_def.serving.signatures import predict_logits

_MODEL, _IMAGES = "model", "images.npy"
_ERROR = re.compile(r"\berror: |^LLVM ERROR")

_FORM = ("size", "fit", "margin", "storage", "quality", "chroma")


def export_lite(
    model: tf_keras.Model,
    kinds: Sequence[LiteKind],
    directory: str,
    *,
    labels: Sequence[str],
    images: Iterable[Any],
    config: TransformConfig,
    views: int = 1,
    temperature: float = 1.0,
) -> None:
    """Convert `model`, and write each small version, the labels, and what was made of what.

    A version takes uint8 [batch, size, size, 3], as Transform stores images, and answers with the
    same probabilities as the served model, float32 [batch, classes].

    Args:
        model: uint8 [batch, size, size, 3] → logits.
        kinds: of versions. One that cannot be made of this network is noted as failed.
        directory: folder to write to, a path or URL.
        labels: of the columns.
        images: uint8 [size, size, 3] each, by which the ranges of int8 are measured.
        config: how Transform brings images to size.
        views: of each image, as the model is served.
        temperature: by which the logits are divided.
    """
    size = config.seen_size

    @tf.function(
        input_signature=[tf.TensorSpec([None, size, size, 3], tf.uint8, name="images")],
        autograph=False,
    )
    def probabilities(images: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax(predict_logits(model, images, views) / temperature)

    served = tf.Module()
    served.weights = model.variables
    tf.io.gfile.makedirs(directory)
    with tempfile.TemporaryDirectory(prefix="lite-") as work:
        signatures = {"serving_default": probabilities}
        tf.saved_model.save(served, os.path.join(work, _MODEL), signatures=signatures)
        np.save(os.path.join(work, _IMAGES), np.stack(list(images)))
        reasons = {kind: _convert(kind, work, directory) for kind in kinds}
    failed = {kind: reason for kind, reason in reasons.items() if reason}
    form = {name: to_dict(config)[name] for name in _FORM}
    manifest = {"form": form, "labels": list(labels), "kinds": list(kinds), "failed": failed}
    _write("".join(f"{label}\n" for label in labels).encode(), directory, LABELS_FILE)
    _write(json.dumps(manifest, indent=1).encode(), directory, MANIFEST_FILE)


def _convert(kind: LiteKind, work: str, directory: str) -> str:
    """Convert what lies in the folder `work`; return why it cannot be done, "" if it was."""
    paths = [os.path.join(work, name) for name in (_MODEL, _IMAGES, lite_file(kind))]
    model, images, file = paths
    done = subprocess.run(
        [sys.executable, str(lite_process.__file__), model, kind, images, file],
        # This process may hold all memory of the GPU.
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    if not done.returncode:
        tf.io.gfile.copy(file, os.path.join(directory, lite_file(kind)), overwrite=True)
        return ""
    lines = [line.strip() for line in done.stderr.decode(errors="replace").splitlines()]
    told = [line for line in lines if line]
    return next((line for line in told if _ERROR.search(line)), told[-1] if told else "killed")


def _write(data: bytes, directory: str, name: str) -> None:
    with tf.io.gfile.GFile(os.path.join(directory, name), "wb") as file:
        file.write(data)

"""Exports small versions of the model for LiteRT: pixels in, probabilities out.

LiteRT has operations neither for decoding images nor for text: the application does what Transform
does, and labels are in a separate file.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from components.contract.configuration import to_dict
from components.contract.model_files import LABELS_FILE, MANIFEST_FILE, LiteKind, lite_file
from components.transform.config import TransformConfig
from pipeline_def.serving import lite_process
from pipeline_def.serving.signatures import Classifier

_MODEL, _IMAGES = "model", "images.npy"
_ERROR = re.compile(r"\berror: |^LLVM ERROR")


def export_lite(
    classifier: Classifier,
    kinds: Sequence[LiteKind],
    directory: str,
    *,
    labels: Sequence[str],
    images: Iterable[Any],
    config: TransformConfig,
    ingest: Mapping[str, Any],
) -> None:
    """Write each version, the labels, and a manifest.

    A version takes uint8 [batch, size, size, 3], as Transform stores images, and returns the
    probabilities of the served model, float32 [batch, classes].

    Args:
        classifier: as in the SavedModel.
        kinds: versions to write. The manifest lists those that cannot be converted as failed.
        directory: path or URL.
        labels: text of each column.
        images: uint8 [size, size, 3] each, to calibrate the ranges of int8.
        config: of the images.
        ingest: how ingest shrank the images before.
    """
    size = config.seen_size

    @tf.function(
        input_signature=[tf.TensorSpec([None, size, size, 3], tf.uint8, name="images")],
        autograph=False,
    )
    def probabilities(images: tf.Tensor) -> tf.Tensor:
        return classifier.probabilities(images)

    served = tf.Module()
    served.weights = classifier.model.variables
    tf.io.gfile.makedirs(directory)
    with tempfile.TemporaryDirectory(prefix="lite-") as work:
        signatures = {"serving_default": probabilities}
        tf.saved_model.save(served, os.path.join(work, _MODEL), signatures=signatures)
        np.save(os.path.join(work, _IMAGES), np.stack(list(images)))
        reasons = {kind: _convert(kind, work, directory) for kind in kinds}
    failed = {kind: reason for kind, reason in reasons.items() if reason}
    texts = list(labels)
    manifest = {
        "ingest": dict(ingest),
        "form": to_dict(config),
        "labels": texts,
        "kinds": list(kinds),
        "failed": failed,
        "set_threshold": classifier.set_threshold,
    }
    _write("".join(f"{text}\n" for text in texts).encode(), directory, LABELS_FILE)
    _write(json.dumps(manifest, indent=1).encode(), directory, MANIFEST_FILE)


def _convert(kind: LiteKind, work: str, directory: str) -> str:
    """Convert the model in the folder `work`; return why it failed, or ""."""
    model, images, file = (os.path.join(work, name) for name in (_MODEL, _IMAGES, lite_file(kind)))
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
    lines = done.stderr.decode(errors="replace").splitlines()
    lines = [line.strip() for line in lines if line.strip()]
    return next((line for line in lines if _ERROR.search(line)), lines[-1] if lines else "killed")


def _write(data: bytes, directory: str, name: str) -> None:
    with tf.io.gfile.GFile(os.path.join(directory, name), "wb") as file:
        file.write(data)

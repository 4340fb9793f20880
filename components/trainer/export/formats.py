"""Exports the model to formats that take pixels: ONNX, and small versions for LiteRT.

Neither has operations for decoding images or for text: the application decodes, and labels are in a
separate file. The ONNX model prepares pixels of any size as Transform does. Golden images tell
whether an application does the same as this code.
"""

import json
import logging
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from components.contract.configuration import from_dict, to_dict
from components.contract.model_files import (
    GOLDEN_FOLDER,
    LABELS_FILE,
    MANIFEST_FILE,
    ONNX,
    ExportFormat,
    format_file,
)
from components.images.canonical import canonicalize, decode
from components.images.options import CHANNELS, ImageOptions, TransformConfig
from components.images.portable import prepare
from components.storage.folder import replace_file
from components.storage.transfer import copy_file
from components.trainer.export import conversion_process
from components.trainer.export.signatures import Classifier

_LOGGER = logging.getLogger(__name__)

_MODEL, _IMAGES = "model", "images.npy"
_ERROR = re.compile(r"\berror: |^LLVM ERROR|\bis not supported\b")
# Messages of TensorFlow's log that are not fatal, with or without the date.
_LOGGED = re.compile(r"^(?:[IWE]\d{4} |[\d-]{10} [\d:.]+: [IWE] )")
_TRACEBACK = "Traceback (most recent call last):"

# Height and width of the golden images, relative to the side of what the model sees, and pixels
# added: as it is, larger, much larger, and smaller.
_GOLDEN_SIDES = (((1, 0), (1, 0)), ((2, 1), (3, 0)), ((5, 0), (4, -3)), ((0.5, 0), (0.5, 3)))


def export_formats(
    classifier: Classifier,
    kinds: Sequence[ExportFormat],
    directory: str,
    *,
    labels: Sequence[str],
    images: Iterable[Any],
    config: TransformConfig,
    ingest: Mapping[str, Any],
) -> None:
    """Write each format, the labels, golden images and a manifest.

    ONNX takes uint8 [batch, height, width, 3], upright and of any size, and returns the outputs of
    `Classifier.answer`; LiteRT takes uint8 [batch, size, size, 3], as Transform stores images, and
    returns `probabilities`.

    Args:
        classifier: as in the SavedModel.
        kinds: formats to write. The manifest lists those that cannot be converted as failed.
        directory: path or URL.
        labels: text of each column.
        images: uint8 [size, size, 3] each, to calibrate the ranges of int8, and to make golden
            images of.
        config: of the images.
        ingest: how ingest shrank the images before.
    """
    size, texts, some = config.seen_size, list(labels), np.stack(list(images))
    shrinking = from_dict(ImageOptions, dict(ingest))

    def answer_plain(pixels: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"probabilities": classifier.probabilities(pixels)}

    def answer_any(pixels: tf.Tensor) -> dict[str, tf.Tensor]:
        return classifier.answer(prepare(pixels, config, ingest=shrinking))

    manifest: dict[str, Any] = {
        "ingest": dict(ingest),
        "form": to_dict(config),
        "labels": texts,
        "kinds": list(kinds),
        "known_threshold": classifier.known and classifier.known.threshold,
    }
    with tempfile.TemporaryDirectory(prefix="formats-") as work:
        np.save(os.path.join(work, _IMAGES), some)
        with open(os.path.join(work, MANIFEST_FILE), "w", encoding="utf-8") as file:
            json.dump(manifest, file)
        _save(classifier, answer_plain, size, os.path.join(work, _MODEL))
        if ONNX in kinds:
            _save(classifier, answer_any, None, os.path.join(work, ONNX))
        reasons = {kind: _convert(kind, work, directory) for kind in kinds}
    manifest["failed"] = {kind: reason for kind, reason in reasons.items() if reason}
    for kind, reason in manifest["failed"].items():
        _LOGGER.warning("The model could not be converted to %s: %s", kind, reason)
    manifest["golden"] = [
        _write_golden(number, pixels, classifier, directory, config=config, ingest=shrinking)
        for number, pixels in enumerate(_make_golden(some, size))
    ]
    lines = "".join(f"{text}\n" for text in texts)
    for name, content in ((LABELS_FILE, lines), (MANIFEST_FILE, json.dumps(manifest, indent=1))):
        replace_file(os.path.join(directory, name), content.encode())


def _save(
    classifier: Classifier,
    function: Callable[[tf.Tensor], dict[str, tf.Tensor]],
    side: int | None,
    directory: str,
) -> None:
    """Save a function of images of this size, or of any, as a SavedModel."""
    spec = tf.TensorSpec([None, side, side, CHANNELS], tf.uint8, name="images")

    @tf.function(input_signature=[spec], autograph=False)
    def answer(images: tf.Tensor) -> dict[str, tf.Tensor]:
        return function(images)

    served = tf.Module()
    served.weights, served.answer = classifier.variables, answer
    tf.saved_model.save(served, directory, signatures={"serving_default": answer})


def _convert(kind: ExportFormat, work: str, directory: str) -> str:
    """Convert the model in the folder `work`; return why it failed, or ""."""
    names = (ONNX if kind == ONNX else _MODEL, _IMAGES, MANIFEST_FILE, format_file(kind))
    paths = [os.path.join(work, name) for name in names]
    done = subprocess.run(
        [sys.executable, str(conversion_process.__file__), kind, *paths],
        # This process may hold all memory of the GPU.
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    if not done.returncode:
        copy_file(paths[-1], os.path.join(directory, names[-1]))
        return ""
    return find_reason(done.stderr.decode(errors="replace")) or "killed"


def find_reason(log: str) -> str:
    """Return the line that says why a process failed; "" if there is none.

    It is that of the last exception, or of the last error if the process aborted. What TensorFlow
    logs, such as a GPU that it does not find, is no reason.
    """
    lines = [line for line in log.splitlines() if line.strip() and not _LOGGED.match(line)]
    if _TRACEBACK in lines:
        last = len(lines) - lines[::-1].index(_TRACEBACK)
        # The message follows the indented frames, and may have several lines.
        message = [line for line in lines[last:] if not line.startswith(" ")]
        reasons = [*filter(_ERROR.search, message), *message][:1]
    else:
        reasons = [*lines, *filter(_ERROR.search, lines)][-1:]
    return "".join(reasons).strip()


def _make_golden(images: npt.NDArray[np.uint8], size: int) -> list[npt.NDArray[np.uint8]]:
    """Lay images out side by side, so that each size has details that a plain resize would lose."""
    canvases = []
    for sides in _GOLDEN_SIDES:
        height, width = (max(1, round(factor * size) + added) for factor, added in sides)
        rows, columns = -(-height // size), -(-width // size)
        numbers = np.arange(rows * columns).reshape(rows, columns) % len(images)
        canvas = np.concatenate([np.concatenate(images[row], axis=1) for row in numbers])
        canvases.append(canvas[:height, :width])
    return canvases


def _write_golden(
    number: int,
    pixels: npt.NDArray[np.uint8],
    classifier: Classifier,
    directory: str,
    *,
    config: TransformConfig,
    ingest: ImageOptions,
) -> dict[str, Any]:
    """Write an image and what the served model sees of it; return its entry of the manifest."""
    file = tf.io.encode_png(pixels)
    seen = decode(canonicalize(file[tf.newaxis], config, ingest=ingest), config)
    [probabilities] = classifier.probabilities(seen).numpy()
    names = [f"{GOLDEN_FOLDER}/{number}{suffix}.png" for suffix in ("", "-seen")]
    for name, png in zip(names, (file, tf.io.encode_png(seen[0])), strict=True):
        replace_file(os.path.join(directory, name), png.numpy())
    return {
        "input": names[0],
        "seen": names[1],
        "probabilities": [float(value) for value in probabilities],
    }

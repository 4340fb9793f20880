"""Small versions of a model for LiteRT, once TensorFlow Lite: where they are, and what they are."""

from __future__ import annotations

from typing import Literal

LiteKind = Literal["float16", "dynamic", "int8"]
"""float16: weights of 2 bytes. dynamic: weights of 1 byte, computed with as float32 or int8, as the
operation can. int8: weights and everything between operations, for which ranges are measured."""

LITE_FOLDER = "Format-Lite"
"""Below the artifact of a model, beside TFX's folder of the SavedModel."""

MANIFEST_FILE = "lite.json"
"""What was made, of what, and how the images have to be brought to size."""

LABELS_FILE = "labels.txt"
"""The label of each column of the answers, a line each."""

LITE_PROPERTY = "lite"
"""Of the blessing: the kinds that are good enough to be pushed, with commas between them."""

PUSHED_LITE = "lite"
"""Folder of the small versions within a pushed model."""


def lite_file(kind: str) -> str:
    """Name the file of a small version."""
    return f"{kind}.tflite"

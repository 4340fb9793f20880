"""What a record holds, the splits that records belong to, and the files beside them."""

import re
from collections.abc import Mapping
from typing import TypeVar

# The feature keys of TensorFlow's own image records (tensorflow/models, `tf_example_decoder.py`).
ENCODED = "image/encoded"
"""The image file, as found or as converted: a JPEG, PNG, GIF or BMP."""
FORMAT = "image/format"
"""One of `FORMATS`."""
FORMATS = ("bmp", "gif", "jpeg", "png")
HEIGHT = "image/height"
"""Pixels."""
WIDTH = "image/width"
"""Pixels."""
CHANNELS = "image/channels"
"""1 for gray, 3 for color."""
FILENAME = "image/filename"
"""Path relative to the ingested folder, with "/" between its parts."""
SHA256 = "image/key/sha256"
"""Hexadecimal digest of the original file."""
LABEL = "image/class/text"
"""Name of the class."""
LABEL_ID = "image/class/label"
"""Number of the class in Transform's vocabulary."""

# Two keys of our own, for statistics that show drift without decoding an image.
FILE_SIZE = "image/file_size"
"""Bytes of the original file."""
LUMINANCE = "image/mean_luminance"
"""Mean luma (ITU-R BT.601) of the stored image, 0 to 255; absent if no pixels were decoded."""

COLUMNS = "image/columns/"
"""Prefix of the features that hold the manifest's further columns; the column's name follows."""

SPAN = "span"
"""The column with the number of an image's span, if the examples are of several."""

SLICINGS = ("class", "size", "luminance", "format", "folder")
"""Slicings of the evaluation that every example has; columns are further ones."""

ALL_COLUMNS = "columns"
"""The entry of `evaluation.slices` that stands for every column of few values."""

LABEL_VOCABULARY = "labels"
"""Name of the label vocabulary in the transform graph."""

INDEX_FILE = "index.json"
"""Counts the records of each shard; lies next to the split folders of an Examples artifact."""

# Of ingest, on the files that it rejected, copied or corrected.
REJECTS_FILE = "rejects.jsonl"
SKIPPED_FILE = "skipped.jsonl"
DUPLICATES_FILE = "duplicates.jsonl"
NEAR_DUPLICATES_FILE = "near_duplicates.jsonl"
CORRECTIONS_FILE = "corrections.jsonl"
SUMMARY_FILE = "summary.json"

LABEL_IS_ALREADY = "the label is already"
"""Beginning of the reason why a correction that its folder has made, too, was not applied."""

TRAIN = "train"
"""Fits the weights; also the source of the statistics and the vocabulary."""

EVAL = "eval"
"""Selects the epoch whose weights are kept, and stops training early."""

TEST = "test"
"""Scores the model; nothing looks at it before. Without it, `EVAL` also scores the model that it
selected, so the score is slightly optimistic."""

# TFX makes a folder of each split.
_SPLIT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")

_Value = TypeVar("_Value")


def is_split_name(name: str) -> bool:
    """Return whether a split may have this name: up to 100 letters, digits, - and _."""
    return _SPLIT_NAME.fullmatch(name) is not None


def name_folds(folds: int) -> str:
    """Return what takes the place of the evaluated split's name after cross-validation: 5 folds."""
    return f"{folds} folds"


def count_folds(split: str) -> int:
    """Return the number of folds in a name of `name_folds`; 0 for a split."""
    number, _, rest = split.partition(" ")
    return int(number) if rest == "folds" else 0


def sort_splits(by_split: Mapping[str, _Value]) -> dict[str, _Value]:
    """Sort items by split: train, eval, test, then the others by name."""
    used = (TRAIN, EVAL, TEST)
    known = [split for split in used if split in by_split]
    others = sorted(split for split in by_split if split not in used)
    return {split: by_split[split] for split in (*known, *others)}


def decode_text(value: bytes) -> str:
    """Decode text that may be any bytes; `encode_text` reverses it."""
    return value.decode("utf-8", "surrogateescape")


def encode_text(value: str) -> bytes:
    """Encode text of `decode_text`."""
    return value.encode("utf-8", "surrogateescape")


def spell_path(path: str) -> str:
    """Spell a path as the table of images does, which holds no invalid bytes."""
    return encode_text(path).decode(errors="backslashreplace")

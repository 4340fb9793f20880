"""Odd images: dark, blurred, blank, tiny and others, the issue types of CleanVision.

An image is odd if it passes an absolute limit and also stands out among the others, so that a set
of small, gray or dark images is not odd as a whole.
"""

from array import array
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from components.contract.artifact_files import on_disk
from components.contract.example import FILENAME, HEIGHT, TRAIN, WIDTH
from components.contract.image_table import Texts
from components.contract.suspects import Reason, Suspect
from components.host.machine import release_pages
from components.records.record_reader import read_features
from components.records.shard_files import list_shards, read_index
from components.records.tfrecord import read_varint
from components.report.suspects.similar import Columns, Features, Ints, find_neighbors

_NAME, _WIDTH, _HEIGHT = FILENAME.encode(), WIDTH.encode(), HEIGHT.encode()

_IDENTITY = ("sha256", "path", "split", "label")
_DISTINCT = ("sha256", "path")

Floats = npt.NDArray[np.float64]

MOST = 36
"""Odd images of a report, no more than a person looks at."""
_MOST_EACH = 12

# Robust standard deviations from the median, in the logarithm of a value, beyond which it stands
# out. Distances to neighbors have a long tail.
_STANDS_OUT, _FAR = 3.0, 5.0
_TO_DEVIATION = 1.4826
_TINIEST = 1e-3

# More gray images than these are part of the set.
_RARE, _RARE_FRACTION = 8, 0.005
_GRAY = 0.02

_NEAREST = 5
# Training images that stand for all others, as comparing all pairs would take too long.
_REFERENCES = 2048
# Images that are compared with them at a time.
_BLOCK = 65_536


class OddImages(NamedTuple):
    """Odd images, and how many were found for each reason."""

    suspects: tuple[Suspect, ...]
    """At most `MOST`, the most conspicuous for each reason."""
    found: Mapping[str, int]


class _Limit(NamedTuple):
    """Values below `limit` are odd if they also stand out."""

    column: str
    limit: float
    least: float = 0.25
    """Smallest standard deviation to assume, in octaves: nearly equal values have no outliers."""


# The most telling reason first, as an image gets only one. The limits of luma (0.32), entropy and
# shape are those of CleanVision 0.3; blurring a photograph by one pixel leaves a sharpness of 0.3.
_LIMITS: Mapping[Reason, _Limit] = {
    "blank": _Limit("contrast", 0.01),
    "odd_shape": _Limit("shape", 0.35),
    "tiny": _Limit("size", 1.0, least=0.6),
    "dark": _Limit("brightness_high", 0.32),
    "bright": _Limit("darkness_high", 0.1),
    "low_information": _Limit("entropy", 3.0),
    "blurred": _Limit("sharpness", 0.4),
}


def read_columns(images: Any, examples_uri: str, *, side: int) -> dict[str, Any]:
    """Return the columns that `find_odd` takes.

    Args:
        images: what `open_images` returns.
        examples_uri: output of ImageExampleGen. Sizes are read from its records if it is on disk;
            from a bucket that would take a download of all images.
        side: side of the images that the model sees, pixels.
    """
    columns: dict[str, Any] = {
        # Equal labels share a text.
        name: Texts(images, name)
        if name in _DISTINCT
        else images.read([name])[name].to_pandas().to_numpy()
        for name in images.schema_arrow.names
    }
    if on_disk(examples_uri) and len((known := _read_sizes(examples_uri))[0]) > 1:
        paths, sizes = known
        places = pc.index_in(images.read(["path"])["path"], value_set=paths).fill_null(0)
        width, height = sizes[places.to_numpy()].T
        columns |= {"width": width, "height": height, "side": np.full((), side)}
    return columns


def _read_sizes(examples_uri: str) -> tuple[Any, npt.NDArray[np.float32]]:
    """Return the path of each image after a null, and width and height in pixels after NaN."""
    paths, sizes = [pa.nulls(1, pa.string())], array("f", (np.nan, np.nan))
    for split in read_index(examples_uri)["splits"]:
        for shard in list_shards(examples_uri, split):
            # A shard's names at a time: as Python's strings they take three times the memory.
            names = []
            for features in read_features(shard, (_NAME, _WIDTH, _HEIGHT)):
                if len(features) == 3:
                    names.append(bytes(features[_NAME]).decode(errors="backslashreplace"))
                    sizes.extend(read_varint(features[key], 0)[0] for key in (_WIDTH, _HEIGHT))
            paths.append(pa.array(names, pa.string()))
    return pa.concat_arrays(paths), np.frombuffer(sizes, np.float32).reshape(-1, 2)


def find_odd(columns: Columns, features: Features | None = None) -> OddImages:
    """Find odd images.

    `decided` ones of the `columns`, see `read_columns`, are left out; `features` are embeddings.
    """
    scores = {
        reason: _keep_odd(_score(values, limit))
        for reason, limit in _LIMITS.items()
        if (values := _derive(columns, limit.column)) is not None
    }
    if features is not None:
        train = np.flatnonzero(columns["split"] == TRAIN)
        scores["outlier"] = _keep_odd(_score_outliers(features, train))
    if "colorfulness" in columns:
        scores["gray"] = _keep_odd(_score_gray(columns["colorfulness"]))
    return _select(columns, scores)


def _keep_odd(scores: Floats) -> tuple[Ints, Floats]:
    """Return the rows of the scores above 0, and these scores."""
    rows = np.flatnonzero(scores > 0)
    return rows, scores[rows]


def _derive(columns: Columns, name: str) -> Floats | None:
    """Return the values of a column of `_LIMITS`; None if the table lacks what it is made of."""
    if name == "darkness_high" and "brightness_low" in columns:
        return 1 - columns["brightness_low"].astype(np.float64)  # type: ignore[no-any-return]
    if name in ("shape", "size") and "width" in columns:
        width, height = (columns[side].astype(np.float64) for side in ("width", "height"))
        shorter = np.minimum(width, height)
        return shorter / (np.maximum(width, height) if name == "shape" else columns["side"])  # type: ignore[no-any-return]
    return columns[name].astype(np.float64) if name in columns else None


def _score(values: Floats, limit: _Limit) -> Floats:
    """Return 0.5 to 1 for odd values, the lowest ones highest; 0 for others and NaN."""
    octaves = np.log2(np.maximum(values, _TINIEST))
    odd = (values < limit.limit) & (_deviate(octaves, limit.least) < -_STANDS_OUT)
    return np.where(odd, 1 - 0.5 * values / limit.limit, 0)


def _deviate(values: Floats, least: float) -> Floats:
    """Return the distances from the median in robust standard deviations."""
    known = values[np.isfinite(values)]
    center = np.median(known) if known.size else 0.0
    deviation = _TO_DEVIATION * np.median(np.abs(known - center)) if known.size else 0.0
    return (values - center) / max(deviation, least)


def _score_outliers(features: Features, train: Ints) -> Floats:
    """Score images that are far from their nearest training images."""
    if len(train) <= _NEAREST:
        return np.zeros(len(features))
    step = -(-len(train) // _REFERENCES)
    distances = np.empty(len(features))
    for start in range(0, len(features), _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, len(features)))
        near = find_neighbors(features, rows, among=train[::step], most=_NEAREST)
        distances[rows] = 1 - near.similarities.mean(axis=1).astype(np.float64)
        release_pages(features)
    far = _deviate(np.log2(np.maximum(distances, _TINIEST)), 0.25)
    return np.where(far > _FAR, 1 - 0.5 * _FAR / np.maximum(far, _FAR), 0)


def _score_gray(colorfulness: npt.NDArray[Any]) -> Floats:
    """Score the gray images of a set that has few of them."""
    gray = colorfulness < _GRAY
    rare = gray.sum() <= max(_RARE, _RARE_FRACTION * len(gray)) and 2 * gray.sum() < len(gray)
    return np.where(gray & rare, 0.5, 0)


def _select(columns: Columns, scores: Mapping[Reason, tuple[Ints, Floats]]) -> OddImages:
    """Give each image its first reason, and keep the highest scores for each."""
    suspects: list[Suspect] = []
    found: dict[str, int] = {}
    taken = np.array(columns.get("decided", np.zeros(len(columns["path"]), bool)))
    for reason, (rows, of_rows) in scores.items():
        left = ~taken[rows]
        rows, of_rows = rows[left], of_rows[left]
        taken[rows] = True
        if len(rows):
            found[reason] = len(rows)
        best = np.argsort(-of_rows, kind="stable")[:_MOST_EACH]
        texts = (columns[name][rows[best]].tolist() for name in _IDENTITY)
        for key, path, split, label, score in zip(*texts, of_rows[best].tolist(), strict=True):
            suspects.append(Suspect(key, path, split, label, reason, score))
    suspects.sort(key=lambda suspect: (-suspect.score, suspect.path))
    return OddImages(tuple(suspects[:MOST]), found)

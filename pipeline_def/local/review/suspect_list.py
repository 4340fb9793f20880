"""The images to review, and the records of a run's shards that belong to them."""

import contextlib
import itertools
import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from components.contract.errors import DataError, StorageError
from components.contract.example import ENCODED, FILENAME, LABEL, SHA256
from components.contract.suspects import REASONS, Suspect
from components.records.record_reader import read_features
from components.records.shard_files import list_shards, read_index

WORDS: dict[str, str] = {
    **REASONS,
    # Of images without a label.
    "uncertain": "The model is uncertain",
    "typical": "Typical of its label, according to the model",
    "control": "Drawn at random, to measure how often the model is right",
}
"""Why a person should look at an image, in words."""

_KEYS = tuple(key.encode() for key in (FILENAME, SHA256, LABEL))


@dataclass(frozen=True)
class ReviewedImage:
    """An image with all reasons to look at it."""

    sha256: str
    path: str
    split: str
    label: str
    proposed: str
    reasons: tuple[tuple[str, float], ...]
    """Each with its score, 0 to 1."""
    neighbors: tuple[str, ...]
    """Paths."""

    def explain(self, note: str = "") -> str:
        """Return a person's note and the reasons with their scores, for the column `why`."""
        reasons = "; ".join(f"{reason} {score:.2f}" for reason, score in self.reasons)
        return f"{note} ({reasons})" if note else reasons


def gather_images(
    suspects: Iterable[Suspect], *, reason: str | None = None, label: str | None = None
) -> list[ReviewedImage]:
    """Join the suspects of each image: wrong labels first, each kind with its highest scores first.

    Args:
        suspects: one per image and reason.
        reason: keep only the images with this reason.
        label: keep only the images with this label, given or proposed.
    """
    by_digest: dict[str, list[Suspect]] = {}
    for suspect in suspects:
        by_digest.setdefault(suspect.sha256, []).append(suspect)
    found = [_join(rows) for rows in by_digest.values()]
    found.sort(key=lambda image: (image.reasons[0][0] != "label", -image.reasons[0][1], image.path))
    return [
        image
        for image in found
        if reason in (None, *(name for name, _ in image.reasons))
        and label in (None, image.label, image.proposed)
    ]


def _join(rows: Sequence[Suspect]) -> ReviewedImage:
    rows = sorted(rows, key=lambda row: (row.reason != "label", -row.score))
    first = rows[0]
    return ReviewedImage(
        sha256=first.sha256,
        path=first.path,
        split=first.split,
        label=first.label,
        proposed=next((row.proposed for row in rows if row.proposed), ""),
        reasons=tuple({row.reason: row.score for row in rows}.items()),
        neighbors=tuple(dict.fromkeys(path for row in rows for path in row.neighbors)),
    )


class Record(NamedTuple):
    """Where an image is in the shards, and what the record says about it."""

    sha256: str
    label: str
    shard: str
    position: int


class Records:
    """Finds images in the shards of a run by their paths; reads the shards once, when needed."""

    def __init__(self, examples: str, paths: Collection[str]) -> None:
        """Look for `paths` in an Examples artifact, a path or URL; it may be gone."""
        self._examples, self._paths = examples, frozenset(paths)
        self._found: dict[str, Record] | None = None
        self._lock = threading.Lock()

    def find(self, path: str) -> Record | None:
        """Return the record of an image; None if the shards do not have it, or are gone."""
        with self._lock:
            if self._found is None:
                self._found = {}
                # What was found before a damaged shard can still be shown.
                with contextlib.suppress(OSError, StorageError, ValueError):
                    self._found.update(self._scan())
        return self._found.get(path)

    def read(self, path: str) -> bytes | None:
        """Return the image file as ingest stored it; None as in `find`."""
        record = self.find(path)
        if record is None:
            return None
        try:
            rows = read_features(record.shard, (ENCODED.encode(),))
            row = next(itertools.islice(rows, record.position, None))
            return bytes(row[ENCODED.encode()])
        except (OSError, StorageError, StopIteration, LookupError):
            return None

    def _scan(self) -> Iterable[tuple[str, Record]]:
        for split in read_index(self._examples)["splits"]:
            for shard in list_shards(self._examples, split):
                for position, row in enumerate(read_features(shard, _KEYS)):
                    path, digest, label = (
                        bytes(row[key]).decode(errors="backslashreplace") for key in _KEYS
                    )
                    if path in self._paths:
                        yield path, Record(digest, label, shard, position)


def list_labels(examples: str, images: Iterable[ReviewedImage]) -> list[str]:
    """Return all labels of an Examples artifact, or those of the images where that is gone."""
    known = {name for image in images for name in (image.label, image.proposed)}
    try:
        index: dict[str, Any] = read_index(examples).get("labels", {})
    except (OSError, StorageError, ValueError):
        index = {}
    return sorted({*known, *(label for counts in index.values() for label in counts)} - {""})


def check_filters(images: Collection[ReviewedImage], *, reason: str | None) -> None:
    """Raise `DataError` if there is no such reason, or no image is left."""
    if reason is not None and reason not in WORDS:
        raise DataError(f"There is no reason {reason!r}: use one of {', '.join(WORDS)}.")
    if not images:
        raise DataError("No suspect matches --reason and --label: leave one of them out.")

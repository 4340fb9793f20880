"""The images of a run that a person should look at."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from components.contract.errors import DataError, StorageError
from components.contract.suspects import REASONS, Suspect
from components.records.shard_files import read_index


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
    images = [_join(rows) for rows in by_digest.values()]
    images.sort(
        key=lambda image: (image.reasons[0][0] != "label", -image.reasons[0][1], image.path)
    )
    return [
        image
        for image in images
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
    if reason is not None and reason not in REASONS:
        raise DataError(f"There is no reason {reason!r}: use one of {', '.join(REASONS)}.")
    if not images:
        raise DataError("No suspect matches --reason and --label: leave one of them out.")

"""How many bytes the pictures of a report may have, so that its page stays small."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from components.images.picture import Picture
from components.report.facts import AnsweredImage

MOST_BYTES = 5_500_000
"""Of all pictures of a page: in base64 a third more, 7.3 MB of the 10 that a page may have."""


def count_bytes(pictures: Iterable[Picture | None]) -> int:
    """Add up the sizes of pictures."""
    return sum(len(picture.jpeg) for picture in pictures if picture)


def keep_within(images: Sequence[AnsweredImage], limit: int) -> tuple[AnsweredImage, ...]:
    """Return the first images whose pictures have together at most `limit` bytes."""
    totals = itertools.accumulate(count_bytes([image.picture, image.heat_map]) for image in images)
    kept = sum(1 for total in totals if total <= limit)
    return tuple(images[:kept])

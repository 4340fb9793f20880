"""What becomes of a file that a model is asked about: an answer, or why there is none."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

Status = Literal["answered", "refused", "skipped"]
Ranking = tuple[tuple[str, float], ...]
"""Labels and their probabilities, 0 to 1, the most probable first."""


@dataclass(frozen=True)
class Outcome:
    """What becomes of one file."""

    file: str
    """Its name as it was given, or below the folder that was given."""
    status: Status
    """skipped: not taken for an image, and not read. refused: ingest would reject it, or the model
    cannot read it."""
    ranking: Ranking = ()
    """Empty unless it is answered."""
    category: str = ""
    """Why it is refused, as ingest counts it."""
    reason: str = ""
    """Why there is no answer, in words."""


class Tally:
    """Counts outcomes as they pass, and sees to it that no file is lost."""

    def __init__(self, total: int) -> None:
        """Expect `total` files."""
        self.total = total
        self.by_status: collections.Counter[str] = collections.Counter()
        self.labels: collections.Counter[str] = collections.Counter()

    def count(self, outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
        """Yield the outcomes, and count them.

        Raises:
            RuntimeError: there are more or fewer than files.
        """
        for outcome in outcomes:
            self.by_status[outcome.status] += 1
            if outcome.ranking:
                self.labels[outcome.ranking[0][0]] += 1
            yield outcome
        if self.by_status.total() != self.total:
            raise RuntimeError(f"{self.total:,} files, but {self.by_status.total():,} outcomes")

    def __str__(self) -> str:
        """Say how many files there were, and what became of them."""
        answered, refused, skipped = (
            self.by_status[status] for status in ("answered", "refused", "skipped")
        )
        return (
            f"{self.total:,} files = {answered:,} answered + {refused:,} refused + "
            f"{skipped:,} skipped"
        )

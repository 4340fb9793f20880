"""A new version beside the one in use: both answer a fraction of the requests until one is proven.

Where both say the same, the new version is neither better nor worse, whatever the truth. Where they
differ, feedback tells which one is right; without it, the worst is assumed.
"""

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from components.contract.confidence import CONFIDENCE, paired_difference
from pipeline_def.local.server.batching import Prediction
from pipeline_def.local.server.model import Model
from pipeline_def.local.server.rest import RequestError

_LOGGER = logging.getLogger(__name__)

# Proof is looked for at 100, 200, 400, ... images. Each look may err half as often as the one
# before, so that all of them together err as often as one interval.
_FIRST_LOOK = 100
# Requests that wait for feedback.
_MOST_OPEN = 10_000


@dataclass(frozen=True)
class CanaryOptions:
    """How a new version is tried."""

    share: float
    """Fraction of the requests that both versions answer."""
    max_drop: float
    """Accuracy that the new version may lose."""
    file: str
    """Keeps which version is in use, for the next start: a path or URL."""


class Canary:
    """Compares a new version with the one in use, on the same images."""

    def __init__(self, model: Model, old: Model, options: CanaryOptions) -> None:
        """Compare `model` with `old`, the version in use."""
        self.model, self.old, self._options = model, old, options
        self.images = self.better = self.worse = 0
        self.open = 0
        """Images about which the versions differ, and nobody has said who is right."""
        self._open: dict[str, list[tuple[str, str] | None]] = {}
        self._look, self._next = 1, _FIRST_LOOK

    def takes(self, request: str) -> bool:
        """Return whether both versions answer the request with this id; always the same."""
        digest = hashlib.sha256(request.encode()).digest()
        return int.from_bytes(digest[:8], "big") < self._options.share * 2**64

    def compare(
        self, request: str, old: Sequence[Prediction], new: Sequence[Prediction]
    ) -> bool | None:
        """Take the answers of both versions; return the verdict as `decide` does."""
        pairs = [
            None if one == other else (one, other)
            for one, other in zip(map(_read_label, old), map(_read_label, new), strict=True)
        ]
        self.images += len(pairs)
        if differing := len(pairs) - pairs.count(None):
            self.open += differing
            self._open[request] = pairs
            if len(self._open) > _MOST_OPEN:
                del self._open[next(iter(self._open))]
        return self.decide()

    def learn(self, request: str, labels: Sequence[str]) -> int:
        """Take the true label of each image of a request; return how many of them tell something.

        Raises:
            RequestError: there are more or fewer images, or neither version has the label.
        """
        pairs = self._open.get(request, [])
        if pairs and len(pairs) != len(labels):
            raise RequestError(400, f"The request had {len(pairs)} images, not {len(labels)}.")
        known = {*self.model.labels, *self.old.labels}
        if known and (unknown := set(labels) - known):
            raise RequestError(400, f"No version has the label {min(unknown)[:80]!r}.")
        found = [(*pair, label) for pair, label in zip(pairs, labels, strict=False) if pair]
        self.better += sum(new == label for _, new, label in found)
        self.worse += sum(old == label for old, _, label in found)
        self.open -= len(found)
        self._open.pop(request, None)
        return len(found)

    def decide(self) -> bool | None:
        """Return True if the new version is proven good enough, False if worse, None if neither."""
        if self.images < self._next:
            return None
        z = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / 2 / 2**self._look)
        self._look += 1
        while self._next <= self.images:
            self._next *= 2
        least, error = paired_difference(self.better, self.worse + self.open, self.images)
        if least - z * error >= -self._options.max_drop:
            return True
        most, error = paired_difference(self.better + self.open, self.worse, self.images)
        return False if most + z * error < 0 else None

    def __str__(self) -> str:
        """Return what was found, as a clause."""
        return (
            f"of {self.images:,} images that both answered, only this version is right about "
            f"{self.better:,}, only version {self.old.version} about {self.worse:,}, and "
            f"{self.open:,} more answers differ"
        )


def _read_label(row: Prediction) -> str:
    label = row.get("label", b"")
    return label.decode("utf-8", "replace") if isinstance(label, bytes) else str(label)

"""What the page shows of suspects and embeddings, apart from what gathers it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from components.contract.suspects import Suspect
from components.images.picture import Picture


@dataclass(frozen=True)
class SimilarImage:
    """A training image that resembles another image."""

    path: str
    label: str
    picture: Picture | None


@dataclass(frozen=True)
class ShownSuspect:
    """A suspect with its picture and the images that explain it."""

    suspect: Suspect
    picture: Picture | None
    similar: tuple[SimilarImage, ...] = ()


@dataclass(frozen=True)
class ImageMap:
    """Images placed by their features, at most 10,000 of them and the suspects that are shown."""

    paths: tuple[str, ...]
    labels: tuple[str, ...]
    places: npt.NDArray[np.float64]
    """0 to 1, [images, 2]."""
    suspects: frozenset[str]
    """Paths."""
    total: int
    """Images of the run, on the map or not."""


class LabelErrors(NamedTuple):
    """An estimate of how many labels are wrong."""

    low: int
    likely: int
    """0 if none stands out."""
    high: int
    images: int
    """All images that were judged."""


@dataclass(frozen=True)
class SuspectFacts:
    """Suspects of a run."""

    rows: tuple[Suspect, ...]
    """All of them, for the table."""
    shown: tuple[ShownSuspect, ...] = ()
    found: Mapping[str, int] = field(default_factory=dict)
    """Reason → images, including those that are not shown."""
    errors: LabelErrors | None = None
    image_map: ImageMap | None = None
    """None without embeddings."""

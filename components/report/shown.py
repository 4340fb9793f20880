"""Images, suspects and pictures as the page shows them, apart from what gathers them."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from components.contract.example import spell_path
from components.contract.image_tables import Suspect
from components.images.thumbnails import Thumbnail
from components.metrics.predictions import Evaluated


@dataclass(frozen=True)
class ClassSample:
    """A few training images of a class."""

    label: str
    seen: tuple[Thumbnail, ...]
    """As the model sees them, without augmentation."""
    augmented: tuple[Thumbnail, ...]
    """As a training step may see them."""

    @property
    def unchanged(self) -> bool:
        """Whether training does not augment them."""
        return self.augmented == self.seen


@dataclass(frozen=True)
class Reject:
    """A rejected file."""

    path: str
    category: str
    reason: str
    picture: Thumbnail | None


@dataclass(frozen=True)
class PredictedImage:
    """An image of the evaluated split with the model's prediction."""

    filename: str
    label: str
    predicted: str
    confidence: float
    """Probability of `predicted`, 0 to 1."""
    probability: float
    """Probability of `label`, 0 to 1."""
    picture: Thumbnail | None
    heat_map: Thumbnail | None = None
    """Areas that contributed most to `predicted`, over the image as the model saw it."""

    @classmethod
    def of(cls, evaluated: Evaluated, row: int, pictures: Mapping[str, Thumbnail | None]) -> Self:
        """Show an evaluated image; `pictures` maps file names to thumbnails."""
        model, stats = evaluated.candidate, evaluated.candidate.stats
        name, column = evaluated.filenames[row], int(model.ids[row])
        is_known = column >= 0
        return cls(
            filename=name,
            label=model.labels[column] if is_known else evaluated.slices["class"][row],
            predicted=model.labels[int(stats.predicted[row])],
            confidence=float(stats.confidence[row]),
            probability=math.exp(-stats.loss[row]) if is_known else 0.0,
            picture=pictures.get(name),
        )

    @property
    def is_right(self) -> bool:
        """Whether the prediction is right."""
        return self.label == self.predicted


@dataclass(frozen=True)
class ImageMap:
    """Images placed by their features, at most 3,000 of them and the suspects that are shown."""

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
    shown: tuple[Suspect, ...] = ()
    """Those with the highest scores."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Reason → images, including those that are not shown."""
    errors: LabelErrors | None = None
    similar: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """File name of a mistake → paths of the most similar training images."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of the paths of similar images and neighbors."""
    pictures: Mapping[str, Thumbnail | None] = field(default_factory=dict)
    """Of the paths of shown suspects, their neighbors and similar images."""
    image_map: ImageMap | None = None
    """None without embeddings."""


@dataclass(frozen=True)
class Finding:
    """Something that stands out in a run."""

    section: str
    """Section of the page with more on it."""
    text: str
    """The fact, with its number."""
    why: str
    """Why it matters."""
    advice: str
    """What to do about it."""


@dataclass(frozen=True)
class Without:
    """The accuracy with and without some of the evaluated images, such as relabeled ones."""

    images: int
    """Number of them."""
    accuracy: float
    """Of all evaluated images, 0 to 1."""
    accuracy_without: float | None
    """Of the others; None if there are none."""

    @classmethod
    def of(cls, evaluated: Evaluated, paths: Collection[str]) -> Self:
        """Measure the accuracy without `paths`, spelled as in the table of images."""
        rest = np.array([spell_path(name) not in paths for name in evaluated.filenames], bool)
        right = evaluated.candidate.stats.right
        without = float(right[rest].mean()) if rest.any() else None
        return cls(int((~rest).sum()), float(right.mean()), without)

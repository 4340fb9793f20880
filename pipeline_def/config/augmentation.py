"""How training images are changed at random: every choice, its default and the reason for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from components.contract.configuration import require
from components.contract.kinds import check_types

_RANGES = {
    "shift": (0, 0.5),
    "min_crop_area": (0.01, 1),
    "rotation": (0, 180),
    "brightness": (0, 1),
    "contrast": (0, 1),
    "saturation": (0, 1),
    "hue": (0, 0.5),
    "cutout": (0, 1),
    "mixup": (0, 100),
    "cutmix": (0, 100),
    "rand_operations": (1, 8),
    "rand_magnitude": (0, 1),
}


@dataclass(frozen=True)
class AugmentationConfig:
    """How training images are changed at random. Evaluation and serving see them unchanged."""

    shift: float = 0.1
    """Move each image by up to this fraction of its side, 0 to 0.5, by whole pixels; reflection
    fills the gap. On, because hardly any label depends on where the object lies."""

    flip: bool = False
    """Mirror half of the images left to right. Off, because text and digits are not symmetric;
    switch it on for photographs."""

    min_crop_area: float = 1.0
    """Cut out a window and enlarge it to the full size: its smallest area as a fraction of the
    image's, 0.01 to 1; its aspect ratio is 3/4 to 4/3 of the image's own (Inception: Szegedy et
    al., 2015). 1 is off; 0.08 is usual for large sets of photographs, 0.5 is safer for small ones,
    where the object may be cut away."""

    rotation: float = 0.0
    """Turn each image by up to this angle either way, degrees, 0 to 180. Off, because most
    photographs are upright; 5 to 15 suits handwriting, 180 pictures taken from above."""

    brightness: float = 0.0
    """Multiply the pixels by 1 plus or minus up to this fraction, 0 to 1. Off, like the three
    below, because colour may be what tells the classes apart; 0.4 is usual for photographs."""

    contrast: float = 0.0
    """Multiply the distance from the image's mean gray by 1 plus or minus up to this fraction, 0 to
    1."""

    saturation: float = 0.0
    """Multiply the distance of each pixel from its own gray by 1 plus or minus up to this fraction,
    0 to 1."""

    hue: float = 0.0
    """Turn the colours around the gray axis by up to this fraction of a full circle either way, 0
    to 0.5; 0.1 is usual."""

    cutout: float = 0.0
    """Side of a square that is painted over with the image's mean colour, as a fraction of the
    image's side, 0 to 1 (DeVries and Taylor, 2017). Off, because it hides small objects; 0.5 was
    best for CIFAR-10."""

    mixup: float = 0.0
    """Blend each image and its label with another one's, by a fraction drawn from Beta(mixup,
    mixup), 0 to 100 (Zhang et al., 2018). 0 is off, because it needs long training; 0.2 is
    usual."""

    cutmix: float = 0.0
    """Replace a rectangle of each image, and that fraction of its label, by another one's; the
    fraction is drawn from Beta(cutmix, cutmix), 0 to 100 (Yun et al., 2019). 0 is off, 1 is usual.
    With mixup on as well, every batch gets one of the two at random."""

    policy: Literal["none", "trivial", "rand"] = "none"
    """trivial: one operation at a random strength for each image, nothing to tune (TrivialAugment:
    Müller and Hutter, 2021). rand: `rand_operations` of them at `rand_magnitude` (RandAugment:
    Cubuk et al., 2020). Off, because some of them change colours and shapes, which may be what
    tells the classes apart; trivial is a good first choice for photographs."""

    rand_operations: int = 2
    """Operations that policy rand applies to each image, one after the other, 1 to 8."""

    rand_magnitude: float = 0.3
    """Strength of the operations of policy rand, 0 to 1."""

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        check_types(self, "augmentation")
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            require(
                low <= value <= high,
                f"augmentation.{name} is {value}: it must be from {low} to {high}.",
            )

    @property
    def soft_labels(self) -> bool:
        """Whether labels become fractions of every class instead of one class."""
        return self.mixup > 0 or self.cutmix > 0

"""What was measured of a small version of a model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LiteResult:
    """A small version, on the images that judge the model."""

    kind: str
    """float16, dynamic or int8."""
    bytes: int = 0
    """Size of its file."""
    accuracy: float = 0.0
    drop: float = 0.0
    """By which its accuracy lies below that of the model."""
    agreement: float = 0.0
    """Fraction of the images, 0 to 1, for which it names the same class as the model."""
    images_per_second: float = 0.0
    """One image at a time, on one core."""
    reason: str = ""
    """Why it is not pushed; "" if it is, with the model."""

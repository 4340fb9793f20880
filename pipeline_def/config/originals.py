"""What `transform.storage: originals` goes together with, in the sections of other steps."""

from __future__ import annotations

from components.contract.configuration import require
from components.transform.config import TransformConfig
from pipeline_def.config.augmentation import AugmentationConfig
from pipeline_def.config.input import InputConfig


def check_originals(
    transform: TransformConfig, options: InputConfig, augmentation: AugmentationConfig
) -> None:
    """Raise `ConfigurationError` for what makes no sense with originals; nothing without them."""
    if transform.storage != "originals":
        return
    require_no_pixels(options.cache)
    require(
        augmentation.min_crop_area < 1,
        "augmentation.min_crop_area is 1, and transform.storage 'originals', out of which training "
        "cuts windows: set it to 0.08 for a large set of photographs, 0.5 for a small one, or "
        "choose transform.storage jpeg.",
    )


def require_no_pixels(cache: str) -> None:
    """Raise `ConfigurationError` for a cache of pixels, which are others in every epoch."""
    require(
        cache not in ("decoded", "file"),
        f"input.cache is {cache!r}, and transform.storage 'originals', out of which every epoch "
        f"cuts other pixels: choose input.cache none or encoded.",
    )

"""The sections `input` and `augmentation`: how images get from shards into a training step."""

from typing import Annotated, Literal

from annotated_types import Interval

from components.contract.configuration import Fraction, Number, Text, configuration, require
from components.trainer.config.model import check_path


@configuration("input")
class InputConfig:
    """How training and evaluation read the transformed shards."""

    reader: Literal["auto", "streamed"] = "auto"
    """How to read shards. streamed: in sequence, several at a time, as shards in Cloud Storage.
    auto: map local shards into memory, and stream others."""

    cache: Literal["auto", "none", "decoded", "file"] = "auto"
    """What to keep in memory or on disk after the first epoch. decoded: uint8 pixels, in memory.
    file: uint8 pixels, in `cache_folder`. auto: decoded if that takes at most half of the available
    memory, else none; the system's page cache keeps local shards in memory anyway. Shuffling and
    augmentation come after the cache."""

    cache_folder: Text | None = None
    """Folder on a fast local disk for `cache: file`. A cache of the same images is reused; files
    that you do not need anymore are yours to remove."""

    def __post_init__(self) -> None:
        """Check the fields against each other."""
        require(
            self.cache_folder is None or self.cache == "file",
            f"input.cache_folder is {self.cache_folder!r}: it needs input.cache file.",
        )
        require(
            self.cache != "file" or bool(self.cache_folder),
            "input.cache is 'file': set input.cache_folder to a folder on a fast local disk.",
        )


@configuration("augmentation")
class AugmentationConfig:
    """Random changes to training images; evaluation and serving see images unchanged."""

    shift: Annotated[Number, Interval(ge=0, le=0.5)] = 0.1
    """Shift each image by up to this fraction of its side; reflection fills the gap. On by default
    because labels rarely depend on the object's position."""

    flip: bool = False
    """Mirror half of the images left to right. Off because text and digits are not symmetric; turn
    it on for photographs."""

    min_crop_area: Annotated[Number, Interval(ge=0.01, le=1)] = 1.0
    """Crop a random window of at least this fraction of the image, and scale it to full size. Its
    aspect ratio is 3/4 to 4/3 of the image's (Inception: Szegedy et al., 2015). 1 turns it off;
    0.08 is common for large sets of photographs, 0.5 is safer for small ones, where a crop may miss
    the object."""

    rotation: Annotated[Number, Interval(ge=0, le=180)] = 0.0
    """Rotate each image by up to this many degrees either way. Off because most photographs are
    upright; 5 to 15 suits handwriting, 180 suits aerial images."""

    brightness: Fraction = 0.0
    """Multiply the pixels by 1 plus or minus up to this fraction. Off, like contrast, saturation
    and hue, because color may distinguish the classes; 0.4 is common for photographs."""

    contrast: Fraction = 0.0
    """Change contrast by up to this fraction: the distance of each pixel from the image's mean
    gray."""

    saturation: Fraction = 0.0
    """Change saturation by up to this fraction: the distance of each pixel from its own gray."""

    hue: Annotated[Number, Interval(ge=0, le=0.5)] = 0.0
    """Rotate colors by up to this fraction of a circle either way; 0.1 is common."""

    cutout: Fraction = 0.0
    """Side of a square filled with the mean color, as a fraction of the image's side. Off because
    it may hide small objects; 0.5 worked best for CIFAR-10 (DeVries and Taylor, 2017)."""

    policy: Literal["none", "trivial"] = "none"
    """Random operations to choose from. trivial: one of random strength per image, with nothing to
    tune, as in TrivialAugment (Müller and Hutter, 2021): shear, translation, rotation, brightness,
    contrast, saturation, or none. Off because some of them change colors and shapes, which may
    distinguish the classes; a good first choice for photographs."""

    fn: Text | None = None
    """Your own augmentation, such as my_package.my_module.my_augmentation. It is a function that
    maps `images`, uint8 [batch, height, width, 3], to uint8 or float (0 to 255) of the same shape,
    with TensorFlow operations only, and without state of its own: it is traced once. It runs after
    the others, on the accelerator. A parameter `seed`, int64 [2], differs in every step: with
    operations such as tf.random.stateless_uniform, a resumed training sees the same images. The
    module must be installed, or lie in the folder that the run is started in."""

    def __post_init__(self) -> None:
        """Check the path of the function."""
        check_path("augmentation.fn", self.fn)

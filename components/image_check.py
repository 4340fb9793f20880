"""Is this file a usable image? Decode it once, and say in words why not."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from fsspec import AbstractFileSystem
from PIL import Image, ImageOps, UnidentifiedImageError

from components.ingest_config import IngestConfig

# What TensorFlow decodes to the pixels that a person sees; anything else is stored as PNG.
_KEPT_MODES = {
    "JPEG": frozenset({"L", "RGB"}),
    # What many phones write: a JPEG, with further pictures behind its end.
    "MPO": frozenset({"L", "RGB"}),
    "PNG": frozenset({"1", "L", "P", "RGB", "I;16"}),
}
_EXIF_ORIENTATION = 0x0112

# Pillow would start Ghostscript on EPS, and has no decoder of its own for the others; nobody
# knows which range of 32-bit pixels is black to white.
_UNSUPPORTED_FORMATS = frozenset({"BUFR", "EPS", "GRIB", "HDF5", "WMF"})
_UNSUPPORTED_MODES = frozenset({"F", "I"})


class Category(StrEnum):
    """Why a file was rejected."""

    NOT_AN_IMAGE = "not an image"
    TRUNCATED = "truncated"
    TOO_LARGE = "too large"
    TOO_SMALL = "too small"
    UNSUPPORTED = "unsupported"
    UNREADABLE = "unreadable"


class Rejected(Exception):
    """The file is not used; `category` and the text say why."""

    def __init__(self, category: Category, reason: str) -> None:
        """Keep the category for counting and the reason for reading."""
        super().__init__(reason)
        self.category = category


@dataclass(frozen=True)
class CheckedImage:
    """An image that TensorFlow decodes to the pixels a person sees."""

    encoded: bytes
    format: str
    """"jpeg" or "png"."""
    height: int
    """Pixels, as `encoded` decodes."""
    width: int


def read_file(fs: AbstractFileSystem, path: str, size: int, config: IngestConfig) -> bytes:
    """Read a file of `size` bytes, as it was listed.

    Raises:
        Rejected: it is too large, cannot be read, or has another size by now.
    """
    if size > config.max_image_mib * 2**20:
        reason = f"{size / 2**20:.1f} MiB, above {config.max_image_mib:g}"
        raise Rejected(Category.TOO_LARGE, reason)
    try:
        data: bytes = fs.cat_file(path)
    except OSError as error:
        raise Rejected(Category.UNREADABLE, str(error)) from error
    if len(data) != size:
        reason = f"{len(data)} bytes, but {size} when it was listed: it changed meanwhile"
        raise Rejected(Category.UNREADABLE, reason)
    return data


def check_image(data: bytes, config: IngestConfig) -> CheckedImage:
    """Decode `data` once; return it, or its lossless PNG where TensorFlow would misread it.

    JPEG and PNG are kept byte for byte. Other formats, CMYK, transparency (put on white) and
    EXIF rotation are written out as PNG.

    Raises:
        Rejected: not an image, broken, too large or too small.
    """
    image = _open(data, config)
    with _rejecting(image):
        return _decoded_by_tensorflow(data, image) if _kept_as_is(image) else _transcoded(image)


def probe_image(data: bytes, config: IngestConfig) -> tuple[str, int, int]:
    """Decode `data` with Pillow alone, which needs no TensorFlow; a quick look, not the check.

    Returns:
        Pillow's name of the format, width and height in pixels.

    Raises:
        Rejected: as `check_image` does.
    """
    image = _open(data, config)
    with _rejecting(image):
        image.load()
    return str(image.format), image.width, image.height


@contextlib.contextmanager
def _rejecting(image: Image.Image) -> Iterator[None]:
    """Turn what a decoder raises into a rejection."""
    try:
        yield
    except Rejected:
        raise
    except (Image.DecompressionBombError, MemoryError) as error:
        raise Rejected(Category.TOO_LARGE, str(error)) from error
    except Exception as error:  # From IndexError to RuntimeError: each decoder has its own.
        raise Rejected(_broken_category(error), f"{image.format}: {error}") from error


def _open(data: bytes, config: IngestConfig) -> Image.Image:
    """Read the header alone and check the size it states."""
    if not data:
        raise Rejected(Category.NOT_AN_IMAGE, "the file is empty")
    try:
        image = Image.open(io.BytesIO(data))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise Rejected(Category.TOO_LARGE, str(error)) from error
    except UnidentifiedImageError as error:
        raise Rejected(Category.NOT_AN_IMAGE, "no image format is recognised") from error
    except Exception as error:  # Pillow's format plugins raise what their parsers raise.
        raise Rejected(Category.NOT_AN_IMAGE, f"the header cannot be read: {error}") from error
    if image.format in _UNSUPPORTED_FORMATS or image.mode in _UNSUPPORTED_MODES:
        raise Rejected(Category.UNSUPPORTED, f"{image.format} with pixels of mode {image.mode}")
    width, height = image.size
    if width * height > config.max_image_mpixels * 1e6:
        raise Rejected(
            Category.TOO_LARGE,
            f"{width} x {height} pixels, above {config.max_image_mpixels:g} million",
        )
    if min(width, height) < config.min_image_pixels:
        raise Rejected(
            Category.TOO_SMALL,
            f"{width} x {height} pixels, shorter side below {config.min_image_pixels}",
        )
    return image


def _kept_as_is(image: Image.Image) -> bool:
    if image.mode not in _KEPT_MODES.get(image.format or "", ()):
        return False
    # Transparency shows the background, which TensorFlow does not know; rotation neither.
    return "transparency" not in image.info and _orientation(image) == 1


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(_EXIF_ORIENTATION, 1))
    except Exception:  # Broken EXIF is common and no reason to lose an image.
        return 1


def _decoded_by_tensorflow(data: bytes, image: Image.Image) -> CheckedImage:
    """Decode with the decoder that Transform uses: what it cannot read would stop the run."""
    import tensorflow as tf

    try:
        height, width, _ = tf.io.decode_image(data, channels=3, expand_animations=False).shape
    except tf.errors.InvalidArgumentError as error:
        image.load()  # Usually says what is wrong in plainer words.
        raise Rejected(
            Category.UNREADABLE, f"{image.format}: {error.message.splitlines()[0]}"
        ) from error
    return CheckedImage(data, "png" if image.format == "PNG" else "jpeg", height, width)


def _transcoded(image: Image.Image) -> CheckedImage:
    """Write the first frame, upright, on white where transparent, as lossless PNG."""
    upright = ImageOps.exif_transpose(image) if _orientation(image) != 1 else image
    if upright.mode.startswith("I;16"):
        pixels = upright.convert("I").point(lambda value: value / 256).convert("L").convert("RGB")
    elif upright.has_transparency_data:
        layer = upright.convert("RGBA")
        pixels = Image.new("RGB", layer.size, "white")
        pixels.paste(layer, mask=layer.getchannel("A"))
    else:
        pixels = upright.convert("RGB")
    buffer = io.BytesIO()
    pixels.save(buffer, "PNG")
    return CheckedImage(buffer.getvalue(), "png", pixels.height, pixels.width)


def _broken_category(error: Exception) -> Category:
    text = str(error).lower()
    cut = "truncated" in text or "premature" in text or "end of file" in text
    return Category.TRUNCATED if cut or isinstance(error, EOFError) else Category.UNREADABLE

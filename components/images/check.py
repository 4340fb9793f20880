"""Is this file a usable image? Decode it once, and say in words why not."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import NamedTuple

import cv2
import numpy as np
from PIL import Image, UnidentifiedImageError

from components.images import jpeg_check, tensorflow_decoder
from components.images.check_result import Category, CheckedImage, Rejected, check_size
from components.images.options import ImageOptions
from components.images.orientation import find_orientation, is_upright
from components.images.transcode import Pixels, as_seen, mean_luminance, shrink, store, to_jpeg

# What TensorFlow decodes to the pixels that a person sees; of MPO, which many phones write, it
# takes the first picture. GIF and BMP are compared, pixel by pixel; anything else is transcoded.
_KEPT_MODES = {
    "JPEG": frozenset({"L", "RGB"}),
    "MPO": frozenset({"L", "RGB"}),
    "PNG": frozenset({"1", "L", "P", "RGB", "I;16"}),
}
_COMPARED_FORMATS = frozenset({"BMP", "GIF"})
_STORED_FORMAT = {"JPEG": "jpeg", "MPO": "jpeg", "PNG": "png", "BMP": "bmp", "GIF": "gif"}
_GRAY_MODES = frozenset({"1", "L", "I;16"})

# Pillow's own limit, in pixels, which it has to be told if ours is above it.
_PILLOWS_LIMIT = 89_478_485

# Pillow would start Ghostscript on EPS, and has no decoder of its own for the others; nobody
# knows which range of 32-bit pixels is black to white.
_UNSUPPORTED_FORMATS = frozenset({"BUFR", "EPS", "GRIB", "HDF5", "WMF"})
_UNSUPPORTED_MODES = frozenset({"F", "I"})


def check_image(data: bytes, config: ImageOptions) -> CheckedImage:
    """Decode `data` once; return what to store of it.

    What TensorFlow decodes to the pixels a person sees is kept byte for byte. The rest (WebP,
    TIFF, CMYK, 16-bit colour, transparency, EXIF rotation, …) is transcoded as the configuration
    says, upright and on white.

    Raises:
        Rejected: not an image, broken, too large or too small.
    """
    if data.startswith(jpeg_check.START) and (checked := jpeg_check.check_jpeg(data, config)):
        return checked
    image = open_image(data, config)
    with rejecting(image):
        return _check_opened(data, image, config)


def _check_opened(data: bytes, image: Image.Image, config: ImageOptions) -> CheckedImage:
    """Check what Pillow has opened."""
    if shows_as_it_is(data, image):
        return _check_kept(data, image, config)
    seen = as_seen(image, orientation=find_orientation(data, image))
    compared = image.format in _COMPARED_FORMATS and not config.is_shrunk(*image.size)
    if compared and is_upright(data, image):
        with contextlib.suppress(Rejected):
            pixels = _decode_with_tensorflow(data, image)
            if np.array_equal(pixels, seen):
                return _as_it_is(data, image, mean_luminance(pixels))
    return _store(seen, config)


def _store(seen: Pixels, config: ImageOptions) -> CheckedImage:
    """Transcode `seen`, and check the result with the decoder that will read it."""
    stored = store(seen, config)
    decoded = _decode_with_tensorflow(stored.encoded, None)
    if decoded.shape != (stored.height, stored.width, 3):
        raise Rejected(Category.UNREADABLE, f"transcoded to {decoded.shape[1::-1]} pixels")
    return stored


def _differ(pixels: Pixels, others: Pixels) -> bool:
    """Say whether two decoders of JPEGs disagree by more than they round."""
    return pixels.shape != others.shape or int(cv2.absdiff(pixels, others).max()) > 1


def shows_as_it_is(data: bytes, image: Image.Image) -> bool:
    """Say whether TensorFlow decodes a JPEG or PNG to the pixels that a person sees."""
    # Transparency shows the background, which TensorFlow does not know; rotation neither.
    if "transparency" in image.info or image.mode not in _KEPT_MODES.get(image.format or "", ()):
        return False
    return is_upright(data, image)


def _check_kept(data: bytes, image: Image.Image, config: ImageOptions) -> CheckedImage:
    """Check a JPEG or PNG that TensorFlow shows as it is."""
    gray = image.mode in _GRAY_MODES
    if _STORED_FORMAT[str(image.format)] == "jpeg":
        if not jpeg_check.is_in_order(data):
            return _store(as_seen(image, orientation=1), config)
        # It came here for its EXIF data only, unless libjpeg-turbo found something odd.
        if checked := jpeg_check.decode_jpeg(data, *image.size, gray=gray, config=config):
            return checked
    elif config.check == "header" and not config.shrink:
        Image.open(io.BytesIO(data)).verify()  # The checksums of all chunks.
        return _as_it_is(data, image, None)
    # Transform decodes with TensorFlow: what that cannot read would stop the run.
    pixels = _decode_with_tensorflow(data, image)
    if image.format != "PNG" and _differ(pixels, seen := as_seen(image, orientation=1)):
        return _store(seen, config)
    if config.shrink and config.is_shrunk(*image.size):
        small = shrink(pixels, side=config.shrink)
        return to_jpeg(small[..., 0] if gray else small, quality=config.quality)
    return _as_it_is(data, image, mean_luminance(pixels))


def _as_it_is(data: bytes, image: Image.Image, luminance: float | None) -> CheckedImage:
    channels = 1 if image.mode in _GRAY_MODES else 3
    kind = _STORED_FORMAT[str(image.format)]
    return CheckedImage(data, kind, image.height, image.width, channels, luminance)


def _decode_with_tensorflow(data: bytes, image: Image.Image | None) -> Pixels:
    """Return [height, width, 3] RGB, as Transform will see it; `image` is the same, for errors."""
    try:
        return tensorflow_decoder.decode(data)
    except tensorflow_decoder.UndecodableError as error:
        if image:
            image.load()  # Usually says what is wrong in plainer words.
        name = image.format if image else "transcoded"
        raise Rejected(Category.UNREADABLE, f"{name}: {error}") from error


class Probe(NamedTuple):
    """What a look at a file without TensorFlow, which takes seconds to load, shows."""

    format: str
    """Pillow's name of it."""
    width: int
    """Pixels."""
    height: int
    stored: int
    """Bytes that ingest would write, as far as can be told."""


def probe_header(data: bytes, config: ImageOptions) -> Probe:
    """Read the header of `data`, which may be the beginning of a file only.

    Raises:
        Rejected: as `check_image` does, for what the header shows.
    """
    image = open_image(data, config)
    return Probe(str(image.format), *image.size, len(data))


def probe_image(data: bytes, config: ImageOptions) -> Probe:
    """Decode `data`: a quick look, not the check.

    Raises:
        Rejected: as `check_image` does.
    """
    image = open_image(data, config)
    stored = len(data)
    with rejecting(image):
        if image.format == "JPEG" and (checked := jpeg_check.check_jpeg(data, config)):
            stored = len(checked.encoded)
        else:
            image.load()
    return Probe(str(image.format), *image.size, stored)


@contextlib.contextmanager
def rejecting(image: Image.Image) -> Iterator[None]:
    """Turn what a decoder raises into a rejection."""
    try:
        yield
    except Rejected:
        raise
    except (Image.DecompressionBombError, MemoryError) as error:
        raise Rejected(Category.TOO_LARGE, str(error)) from error
    except Exception as error:  # From IndexError to RuntimeError: each decoder has its own.
        raise Rejected(_broken_category(error), f"{image.format}: {error}") from error


def open_image(data: bytes, config: ImageOptions) -> Image.Image:
    """Read the header alone and check the size it states."""
    if not data:
        raise Rejected(Category.NOT_AN_IMAGE, "the file is empty")
    # The same for all threads of a run; it warns above, and refuses twice as many.
    Image.MAX_IMAGE_PIXELS = max(_PILLOWS_LIMIT, int(config.max_image_mpixels * 1e6))
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
    check_size(*image.size, config)
    return image


def _broken_category(error: Exception) -> Category:
    text = str(error).lower()
    cut = "truncated" in text or "premature" in text or "end of file" in text
    return Category.TRUNCATED if cut or isinstance(error, EOFError) else Category.UNREADABLE

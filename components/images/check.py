"""Check image files for ingest and for the server: keep, convert or reject them."""

import contextlib
import dataclasses
import io
import re

import cv2
import numpy as np
from PIL import Image

from components.images import jpeg_check
from components.images.check_result import Category, CheckedImage, Note, Rejected
from components.images.formats import open_image, rejecting
from components.images.jpeg_frame import START, read_orientation
from components.images.options import ImageOptions
from components.images.transcode import (
    Pixels,
    as_seen,
    find_orientation,
    make_thumbprint,
    mean_luminance,
    shrink,
    store,
    to_jpeg,
    turn,
)
from components.storage.fetch import Content, Unread

# TensorFlow decodes these to the pixels that a person sees, but for the orientation; of MPO, which
# many phones write, it takes the first picture. BMP and GIF of one frame are compared pixel by
# pixel; anything else is transcoded.
_KEPT_MODES = {
    "JPEG": frozenset({"L", "RGB"}),
    "MPO": frozenset({"L", "RGB"}),
    "PNG": frozenset({"1", "L", "P", "RGB", "I;16"}),
}
_COMPARED_FORMATS = frozenset({"BMP", "GIF"})
_STORED_FORMAT = {"JPEG": "jpeg", "MPO": "jpeg", "PNG": "png", "BMP": "bmp", "GIF": "gif"}
_PAGED_FORMATS = frozenset({"TIFF", "HEIF"})
_GRAY_MODES = frozenset({"1", "L", "I;16"})

# Node and operation, which TensorFlow adds to its messages.
_CONTEXT = re.compile(r"\{\{.*?\}\}\s*|\s*\[Op:.*?\].*")


def usable(content: Content) -> bytes:
    """Return the bytes of a file, or raise `Rejected` if it could not be read."""
    if isinstance(content, Unread):
        category = Category.TOO_LARGE if content.too_large else Category.UNREADABLE
        raise Rejected(category, content.reason)
    return content


def check_image(data: bytes, config: ImageOptions) -> CheckedImage:
    """Decode `data` once, and return what to store.

    A file that the served graph shows as a person sees it is kept byte for byte, also if EXIF turns
    it. Others (WebP, TIFF, CMYK, 16-bit color, transparency, …) are transcoded,
    upright and on white; a JPEG stays a JPEG.

    Raises:
        Rejected: not an image, broken, too large or too small.
    """
    if data.startswith(START) and (checked := jpeg_check.check_jpeg(data, config)):
        return checked
    image = open_image(data, config)
    with rejecting(image):
        checked = _check_opened(data, image, config)
    return dataclasses.replace(checked, notes=_find_notes(image))


def _find_notes(image: Image.Image) -> tuple[Note, ...]:
    notes = []
    with contextlib.suppress(Exception):  # What follows the first frame may be broken.
        # The other pictures of a phone's MPO are depth maps and previews.
        if image.format != "MPO" and getattr(image, "is_animated", False):
            notes.append(Note.PAGES if image.format in _PAGED_FORMATS else Note.FRAMES)
        # Of 12 bits, for example, which are stored in 16 as they are.
        if image.mode.startswith("I") and np.max(np.asarray(image)) < 2**14:
            notes.append(Note.DARK)
    return tuple(notes)


def _check_opened(data: bytes, image: Image.Image, config: ImageOptions) -> CheckedImage:
    orientation = _agreed_orientation(data, image)
    if orientation and _is_kept(data, image):
        return _check_kept(data, image, orientation, config)
    compared = image.format in _COMPARED_FORMATS and not config.is_shrunk(*image.size)
    # TensorFlow decodes all frames, of any size, to return the first.
    if compared and orientation == 1 and not _has_frames(image):
        with contextlib.suppress(Rejected):
            pixels = _decode_with_tensorflow(data, image)
            if np.array_equal(pixels, as_seen(image, orientation=1)):
                return _as_it_is(data, image, pixels, config)
    return _store(data, image, config)


def _has_frames(image: Image.Image) -> bool:
    with contextlib.suppress(Exception):
        return bool(getattr(image, "is_animated", False))
    return True  # What follows the first frame is broken.


def _store(data: bytes, image: Image.Image, config: ImageOptions) -> CheckedImage:
    """Transcode an image to a file that every decoder reads."""
    pixels = _see(data, image)
    stored = store(pixels, image, config)
    return dataclasses.replace(stored, thumbprint=make_thumbprint(pixels, config))


def _agreed_orientation(data: bytes, image: Image.Image) -> int | None:
    """Return the orientation that both Pillow and the served graph read; None if they differ.

    They may disagree on damaged, misplaced or duplicate metadata.
    """
    orientation = find_orientation(data, image)
    return orientation if orientation == read_orientation(data) else None


def _see(data: bytes, image: Image.Image) -> Pixels:
    """Return [height, width, 3] RGB, upright."""
    # Pillow turns a TIFF as it loads it, and forgets its orientation.
    image.load()
    return as_seen(image, orientation=find_orientation(data, image))


def _is_kept(data: bytes, image: Image.Image) -> bool:
    # TensorFlow does not know the background behind transparency.
    modes = _KEPT_MODES.get(str(image.format), frozenset())
    plain = image.mode in modes and "transparency" not in image.info
    return plain and (_STORED_FORMAT.get(str(image.format)) != "jpeg" or jpeg_check.is_plain(data))


def _check_kept(
    data: bytes, image: Image.Image, orientation: int, config: ImageOptions
) -> CheckedImage:
    """Check a JPEG or PNG that the served graph shows as a person sees it."""
    gray = image.mode in _GRAY_MODES
    if _STORED_FORMAT[str(image.format)] == "jpeg":
        # The fast check left it for its metadata, unless libjpeg-turbo found something odd.
        if checked := jpeg_check.decode_jpeg(
            data, *image.size, gray=gray, orientation=orientation, config=config
        ):
            return checked
    elif config.check == "header" and not config.shrink:
        open_image(data, config).verify()  # The checksums of all chunks.
        return _as_it_is(data, image, None, config, orientation)
    # Transform decodes with TensorFlow: a file that it cannot read would stop the run.
    pixels = _decode_with_tensorflow(data, image)
    if image.format != "PNG" and _differ(pixels, as_seen(image, orientation=1)):
        return _store(data, image, config)
    if config.shrink and config.is_shrunk(*image.size):
        small = turn(shrink(pixels, side=config.shrink), orientation)
        stored = to_jpeg(small[..., 0] if gray else small, quality=config.quality)
        return dataclasses.replace(stored, thumbprint=make_thumbprint(small, config))
    return _as_it_is(data, image, pixels, config, orientation)


def _differ(pixels: Pixels, others: Pixels) -> bool:
    """Return whether two JPEG decoders disagree by more than rounding."""
    return pixels.shape != others.shape or int(cv2.absdiff(pixels, others).max()) > 1


def _as_it_is(
    data: bytes,
    image: Image.Image,
    pixels: Pixels | None,
    config: ImageOptions,
    orientation: int = 1,
) -> CheckedImage:
    channels = 1 if image.mode in _GRAY_MODES else 3
    kind = _STORED_FORMAT[str(image.format)]
    height, width = image.size if orientation >= 5 else image.size[::-1]
    if pixels is None:
        return CheckedImage(data, kind, height, width, channels, None)
    thumbprint = make_thumbprint(pixels, config, orientation=orientation)
    luminance = mean_luminance(pixels)
    return CheckedImage(data, kind, height, width, channels, luminance, thumbprint)


def _decode_with_tensorflow(data: bytes, image: Image.Image) -> Pixels:
    """Return [height, width, 3] RGB, as Transform will see it; `image` is the same, for errors."""
    # It takes seconds to load, and most JPEGs are checked without it.
    import tensorflow as tf

    from components.images.canonical import decode_jpeg, decode_other

    # As `decode_file` chooses in the graph; eagerly, the choice takes longer than a small PNG.
    decode = decode_jpeg if data.startswith(b"\xff\xd8\xff") else decode_other
    try:
        pixels: Pixels = decode(data).numpy()
    except tf.errors.InvalidArgumentError as error:
        image.load()  # Usually raises a plainer message.
        reason = _CONTEXT.sub("", error.message.splitlines()[0])
        raise Rejected(Category.UNREADABLE, f"{image.format}: {reason}") from error
    return pixels


def count_pixels(data: bytes, options: ImageOptions) -> int:
    """Return width times height as the header of a file, possibly hostile, states them.

    Raises:
        Rejected: the file is not an image, is too large, or is not supported.
    """
    image = _open_untrusted(data, options)
    return image.width * image.height


def convert(data: bytes, options: ImageOptions) -> bytes:
    """Return a file that the served graph shows as a person sees it, perhaps `data`.

    Others (transparency, WebP, …) become BMP, which is lossless and fast to write: 3 bytes per
    pixel; a JPEG (CMYK, …) stays a JPEG, as in ingest.

    Raises:
        Rejected: as by `count_pixels`, or the file is broken.
    """
    image = _open_untrusted(data, options)
    with rejecting(image):
        if _is_kept(data, image) and _agreed_orientation(data, image):
            return data
        if hasattr(image, "quantization"):
            return _store(data, image, options).encoded
        buffer = io.BytesIO()
        Image.fromarray(_see(data, image)).save(buffer, "BMP")
        return buffer.getvalue()


def _open_untrusted(data: bytes, options: ImageOptions) -> Image.Image:
    if data.startswith(START):
        jpeg_check.check_scans(data, jpeg_check.MOST_SCANS_ASKED)
    return open_image(data, options)

"""The formats that ingest, prediction and the server take, and the names of others.

Pillow has decoders for dozens of formats, most of which nobody has reviewed, and some of which show
other pixels than a person sees.
"""

import contextlib
import dataclasses
import io
import re
from collections.abc import Iterator

import pi_heif
from PIL import Image, UnidentifiedImageError

from components.images.check_result import Category, Rejected
from components.images.options import ImageOptions

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "AVIF", "HEIF", "PPM")
"""Pillow's names of all formats beside TIFF, common ones first; JPEG includes phones' MPO."""

_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")

# Where each of these begins. Pillow would take cameras' files for TIFF, and PFM for Netpbm.
_OTHERS = {
    "DICOM": rb".{128}DICM|\x02\x00[\x00\x02]\x00UL",
    "PSD": rb"8BPS",
    "JPEG 2000": rb".{4}jP  |\xff\x4f\xff\x51",
    "JPEG XL": rb"\xff\x0a|\x00\x00\x00\x0cJXL ",
    "a camera's raw format": rb"II\*\x00.{4}CR|II(?:RO|RS|U\x00)|FUJIFILMCCD|\x00MRM|.{4}ftypcrx",
    "video": rb".{4}ftyp(?:isom|iso\d|mp4|avc1|M4V|qt|3g)|\x1aE\xdf\xa3|RIFF.{4}AVI ",
    "PFM": rb"P[Ff]\s",
    "PDF": rb"%PDF",
    "SVG": rb"\s*(?:<\?xml.{,200}\?>.{,2000}?)?<svg\b",
}
_OTHER = re.compile(b"|".join(b"(%s)" % start for start in _OTHERS.values()), re.DOTALL)

# Pillow's own limit, pixels.
_PILLOW_LIMIT = 89_478_485

_PNG_GRAY, _PNG_RGB = 0, 2

_FILE_TYPE = b"ftyp"
# Length and type of the box that states the size of an image.
_SIZE_BOX = b"\0\0\0\x14ispe"
_MOST_BOXES = 10_000

# Ingest has a thread per core. Pictures for depth and preview are not decoded.
pi_heif.register_heif_opener(
    decode_threads=1, thumbnails=False, depth_images=False, aux_images=False
)


def open_image(data: bytes, config: ImageOptions) -> Image.Image:
    """Read the header only, and check the image size that it states.

    Raises:
        Rejected: not an image, of a format or kind that is not supported, too large or too small.
    """
    if not data:
        raise Rejected(Category.NOT_AN_IMAGE, "the file is empty")
    if (match := _OTHER.match(data)) and match.lastindex:
        name = list(_OTHERS)[match.lastindex - 1]
        reason = f"{name} is not supported: store images as PNG or JPEG"
        raise Rejected(Category.UNSUPPORTED, reason)
    _check_boxes(data, config)
    # The same for all threads of a run. Pillow warns above it, and raises above twice as many.
    Image.MAX_IMAGE_PIXELS = max(_PILLOW_LIMIT, int(config.max_image_mpixels * 1e6))
    try:
        image = _open(data, config)
    except Rejected:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        # Its text names a limit of Pillow's, which nobody has set.
        reason = f"its pixels exceed max_image_mpixels ({config.max_image_mpixels:g})"
        raise Rejected(Category.TOO_LARGE, reason) from error
    except UnidentifiedImageError as error:
        raise Rejected(Category.NOT_AN_IMAGE, "unknown image format") from error
    except Exception as error:  # Format plugins raise what their parsers raise.
        raise Rejected(Category.NOT_AN_IMAGE, f"the header cannot be read: {error}") from error
    config.check_size(*image.size)
    return image


def _open(data: bytes, config: ImageOptions) -> Image.Image:
    if data.startswith(_TIFF):
        # Few files need tifffile, which takes 0.3 s to load.
        from components.images.tiff import open_tiff

        return open_tiff(data, most_pixels=config.max_image_mpixels * 1e6)
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    except ValueError:
        image = Image.open(io.BytesIO(_drop_profile(data)), formats=FORMATS)
    if image.format == "PNG" and "transparency" in image.info:
        _correct_key(data, image)
    return image


def _drop_profile(data: bytes) -> bytes:
    """Return a PNG without its profile, which Pillow does not open if it inflates to megabytes."""
    place = data.find(b"iCCP") - 4
    if place < 0 or not data.startswith(b"\x89PNG"):
        return data
    size = int.from_bytes(data[place : place + 4], "big")
    return data[:place] + data[place + 12 + size :]


def _correct_key(data: bytes, image: Image.Image) -> None:
    """Correct the transparent color of a PNG, if it names one, for its depth.

    Source: PNG (third edition), 11.3.1.1.
    """
    depth, color = data[24:26]
    if color == _PNG_GRAY and depth in (2, 4):
        # Pillow scales the pixels alone.
        image.info["transparency"] *= 255 // (2**depth - 1)
    if color == _PNG_RGB and depth == 16:
        reason = "PNG of 16 bits with a transparent color: store its transparency as a fourth band"
        raise Rejected(Category.UNSUPPORTED, reason)


def _check_boxes(data: bytes, config: ImageOptions) -> None:
    """Reject a HEIF or AVIF file that is cut, or whose image is too large.

    A decoder reserves memory for the size in the boxes, which may be above that of the picture.

    Source: ISO/IEC 14496-12, 4.2 (boxes); ISO/IEC 23008-12, 6.5.3 (`ispe`).
    """
    if data[4:8] != _FILE_TYPE:
        return
    # Thumbnails and tiles may be small.
    limits = dataclasses.replace(config, min_image_pixels=1)
    place = -1
    for _ in range(_MOST_BOXES):
        place = data.find(_SIZE_BOX, place + 1)
        if place < 0:
            break
        sides = data[place + 12 : place + 16], data[place + 16 : place + 20]
        width, height = (int.from_bytes(side, "big") for side in sides)
        limits.check_size(width, height)
    end = 0
    for _ in range(_MOST_BOXES):
        if end + 8 > len(data):
            break
        size = int.from_bytes(data[end : end + 4], "big")
        if size == 1:
            size = int.from_bytes(data[end + 8 : end + 16], "big")
        # The last box may be as long as the file.
        end = end + size if size >= 8 else len(data)
    if end > len(data):
        reason = f"the file ends after {len(data):,} of {end:,} bytes"
        raise Rejected(Category.TRUNCATED, reason)


@contextlib.contextmanager
def rejecting(image: Image.Image) -> Iterator[None]:
    """Turn errors of decoders into rejections."""
    try:
        yield
    except Rejected:
        raise
    except (Image.DecompressionBombError, MemoryError) as error:
        raise Rejected(Category.TOO_LARGE, str(error) or "memory ran out") from error
    except Exception as error:  # Decoders raise anything from IndexError to RuntimeError.
        text = str(error).lower()
        cut = "truncated" in text or "premature" in text or "end of file" in text
        truncated = cut or isinstance(error, EOFError)
        category = Category.TRUNCATED if truncated else Category.UNREADABLE
        raise Rejected(category, f"{image.format}: {error}") from error

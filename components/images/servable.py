"""Check files from untrusted clients by their header, and convert them for the model."""

from __future__ import annotations

import io

from PIL import Image

from components.images import check, jpeg_check
from components.images.check_result import Category, Rejected
from components.images.options import ImageOptions
from components.images.orientation import find_orientation
from components.images.transcode import as_seen

# Signatures of the formats that cameras, phones and browsers write. Pillow has decoders for dozens
# more, few of which have been reviewed.
_SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM", b"RIFF", b"II*\0", b"MM\0*")
_BOX = b"ftyp"


def count_pixels(data: bytes, options: ImageOptions) -> int:
    """Return width times height as the header of a file states them; nothing is decoded.

    Args:
        data: content of any file, possibly hostile.
        options: size limits; the other options are for ingest.

    Raises:
        Rejected: the file is not an image, is too large, or is not supported.
    """
    image = _open(data, options)
    return image.width * image.height


def convert(data: bytes, options: ImageOptions) -> bytes:
    """Return a file that the served graph shows as a person sees it, perhaps `data`.

    Others (transparency, CMYK, WebP, …) become BMP, which is lossless and fast to write: 3 bytes
    per pixel.

    Raises:
        Rejected: as by `count_pixels`, or the file is broken.
    """
    image = _open(data, options)
    with check.rejecting(image):
        if check.shows_as_it_is(data, image):
            return data
        image.load()
        orientation = find_orientation(data, image)
        buffer = io.BytesIO()
        Image.fromarray(as_seen(image, orientation=orientation)).save(buffer, "BMP")
        return buffer.getvalue()


def _open(data: bytes, options: ImageOptions) -> Image.Image:
    if not data.startswith(_SIGNATURES) and data[4:8] != _BOX:
        reason = "unknown image format" if data else "the file is empty"
        raise Rejected(Category.NOT_AN_IMAGE, reason)
    if data.startswith(jpeg_check.START):
        jpeg_check.check_scans(data, jpeg_check.MOST_SCANS_ASKED)
    return check.open_image(data, options)

"""Check files from untrusted clients by their header, and convert them for the model."""

from __future__ import annotations

import io
from dataclasses import dataclass

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


@dataclass(frozen=True)
class ServableFile:
    """An image file whose header passed the checks; its pixels are not decoded yet."""

    data: bytes
    pixels: int
    """Width times height."""
    _image: Image.Image
    is_kept: bool
    """Whether TensorFlow decodes the file to the pixels that a person sees."""

    def convert(self) -> bytes:
        """Return a file that TensorFlow decodes to the pixels that a person sees.

        Files that are not kept (EXIF rotation, transparency, CMYK, WebP, …) become BMP, which is
        lossless and fast to write: 3 bytes per pixel.

        Raises:
            Rejected: the file is broken.
        """
        if self.is_kept:
            return self.data
        with check.rejecting(self._image):
            self._image.load()
            buffer = io.BytesIO()
            orientation = find_orientation(self.data, self._image)
            Image.fromarray(as_seen(self._image, orientation=orientation)).save(buffer, "BMP")
            return buffer.getvalue()


def open_servable(data: bytes, options: ImageOptions) -> ServableFile:
    """Check the header of a file and the image size that it states.

    Args:
        data: content of any file, possibly hostile.
        options: size limits; the other options are for ingest.

    Raises:
        Rejected: the file is not an image, is too large, or is not supported.
    """
    if not data.startswith(_SIGNATURES) and data[4:8] != _BOX:
        reason = "unknown image format" if data else "the file is empty"
        raise Rejected(Category.NOT_AN_IMAGE, reason)
    if data.startswith(jpeg_check.START):
        jpeg_check.check_scans(data, jpeg_check.MOST_SCANS_ASKED)
    image = check.open_image(data, options)
    with check.rejecting(image):
        is_kept = check.shows_as_it_is(data, image)
    return ServableFile(data, image.width * image.height, image, is_kept)

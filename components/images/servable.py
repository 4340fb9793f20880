"""Files from anybody, for a model that is asked at once: checked quickly, seen as by ingest."""

from __future__ import annotations

import io
from typing import NamedTuple

from PIL import Image

from components.images import check, jpeg_check
from components.images.check_result import Category, Rejected
from components.images.options import ImageOptions
from components.images.orientation import find_orientation
from components.images.transcode import as_seen

# The first bytes of the formats that cameras, phones and browsers write. Pillow knows dozens more,
# with decoders that few people have looked at.
_STARTS = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM", b"RIFF", b"II*\0", b"MM\0*")
_BOX = b"ftyp"


class Servable(NamedTuple):
    """A file that TensorFlow decodes to the pixels a person sees."""

    encoded: bytes
    pixels: int
    """Its width by its height."""


def make_servable(data: bytes, options: ImageOptions) -> Servable:
    """Check the header and the size it states; leave the pixels of most files to the model.

    What TensorFlow shows otherwise than a person sees it (EXIF rotation, transparency, CMYK, WebP,
    …) is decoded, and written as BMP, which loses nothing and takes no time. A JPEG or PNG that is
    broken further on is found when the model is asked for it.

    Args:
        data: content of any file, hostile ones included.
        options: the limits; the rest of them is for ingest.

    Raises:
        Rejected: as `check_image` does.
    """
    if not data.startswith(_STARTS) and data[4:8] != _BOX:
        reason = "no image format is recognised" if data else "the file is empty"
        raise Rejected(Category.NOT_AN_IMAGE, reason)
    if data.startswith(jpeg_check.START):
        jpeg_check.check_scans(data, jpeg_check.MOST_SCANS_ASKED)
    image = check.open_image(data, options)
    with check.rejecting(image):
        if check.shows_as_it_is(data, image):
            return Servable(data, image.width * image.height)
        image.load()
        buffer = io.BytesIO()
        seen = as_seen(image, orientation=find_orientation(data, image))
        Image.fromarray(seen).save(buffer, "BMP")
        return Servable(buffer.getvalue(), image.width * image.height)

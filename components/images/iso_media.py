"""HEIF and AVIF files: their boxes are checked before a decoder reads them.

Importing this module lets Pillow read HEIC and HEIF.

Source: ISO/IEC 14496-12, 4.2 (boxes); ISO/IEC 23008-12, 6.5.3 (`ispe`).
"""

from collections.abc import Iterator

import pi_heif

from components.images.check_result import Category, Rejected, check_size
from components.images.options import ImageOptions

_FILE_TYPE = b"ftyp"
# Length and type of the box that states the size of an image.
_SIZE_BOX = b"\0\0\0\x14ispe"
_MOST_BOXES = 10_000

# Ingest has a thread per core. Pictures for depth and preview are not decoded.
pi_heif.register_heif_opener(
    decode_threads=1, thumbnails=False, depth_images=False, aux_images=False
)


def check_boxes(data: bytes, config: ImageOptions) -> None:
    """Reject a file that is cut, or whose image is too large.

    A decoder reserves memory for the size in the boxes, which may be above that of the picture.
    """
    if data[4:8] != _FILE_TYPE:
        return
    place = -1
    for _ in range(_MOST_BOXES):
        place = data.find(_SIZE_BOX, place + 1)
        if place < 0:
            break
        sides = data[place + 12 : place + 16], data[place + 16 : place + 20]
        width, height = (int.from_bytes(side, "big") for side in sides)
        _check_large(width, height, config)
    end = max((end for _, _, end in walk_boxes(data)), default=0)
    if end > len(data):
        reason = f"the file ends after {len(data):,} of {end:,} bytes"
        raise Rejected(Category.TRUNCATED, reason)


def _check_large(width: int, height: int, config: ImageOptions) -> None:
    try:
        check_size(width, height, config)
    except Rejected as rejected:
        if rejected.category == Category.TOO_LARGE:  # Thumbnails and tiles may be small.
            raise


def walk_boxes(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield type, start of the content and end of each box; the last ends with the file if open."""
    place = 0
    for _ in range(_MOST_BOXES):
        if place + 8 > len(data):
            return
        size, kind, start = (
            int.from_bytes(data[place : place + 4], "big"),
            data[place + 4 : place + 8],
            8,
        )
        if size == 1:
            size, start = int.from_bytes(data[place + 8 : place + 16], "big"), 16
        end = place + size if size >= 8 else len(data)
        yield kind, place + start, end
        place = end

"""Which way up an image file says that it is: as Pillow reads it, and as the served model does."""

from __future__ import annotations

import itertools
import struct

from PIL import Image

from components.images.jpeg_frame import SEARCHED_BYTES, walk_segments
from components.images.tensorflow_decoder import read_orientation

_TAG = 0x0112
_SHORT = 3
EXIF, XMP = b"Exif\0\0", b"tiff:Orientation"
"""One of them is in the head of every file but a PNG that may say how it is to be turned."""
_PNG_EXIF = b"eXIf"
_APP1 = 0xE1
# Of segments for applications and comments: what precedes EXIF data, where anything does.
_MARKERS = frozenset({*range(0xE0, 0xF0), 0xFE})
_MOST_SEGMENTS = 100
# More tags than any writer of EXIF data has.
_MOST_ENTRIES = 1000
# What a PNG calls the places where it may say how it is to be turned.
_PNG_PLACES = (_PNG_EXIF, b"Raw profile type exif", b"XML:com.adobe.xmp")


def find_orientation(data: bytes, image: Image.Image) -> int:
    """Return how metadata say that an image is to be turned, 1 to 8; 1 is upright."""
    if image.format == "PNG" and not any(name in data for name in _PNG_PLACES):
        return 1  # Pillow would decode the whole image to find out.
    try:
        return int(image.getexif().get(_TAG, 1))
    except Exception:  # Broken EXIF is common and no reason to lose an image.
        return 1


def is_upright(data: bytes, image: Image.Image) -> bool:
    """Say whether Pillow and TensorFlow's graph agree that an image is upright.

    Metadata that are damaged, in the wrong place or there twice may say something to one of them
    only; what is stored as it is, the graph must not turn.
    """
    if find_orientation(data, image) != 1:
        return False
    silent = _is_silent(data) and (image.format != "PNG" or _PNG_EXIF not in data)
    return silent or _says_upright(data) or read_orientation(data) == 1


def is_plainly_upright(data: bytes) -> bool:
    """Say whether a JPEG is upright without a doubt: for an odd one that is, the answer is no."""
    return _is_silent(data) or _says_upright(data)


def _is_silent(data: bytes) -> bool:
    head = data[:SEARCHED_BYTES]
    return not any(word in head for word in (EXIF, XMP))


def _says_upright(data: bytes) -> bool:
    """Say whether a JPEG says once, and clearly, that it is upright: the graph takes a millisecond.

    Source: CIPA DC-008 (EXIF 2.32), 4.5.4 and 4.6.
    """
    start = _find_exif(data)
    if not start:
        return False
    tiff = data[start : start + SEARCHED_BYTES]
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    try:
        [directory] = struct.unpack_from(f"{order}I", tiff, 4)
        [count] = struct.unpack_from(f"{order}H", tiff, directory)
        entries = [
            struct.unpack_from(f"{order}HHIH", tiff, directory + 2 + 12 * number)
            for number in range(count)
        ]
    except struct.error:  # It ends before that, or begins with another order.
        return False
    if count > _MOST_ENTRIES:
        return False
    said = [entry[1:] for entry in entries if entry[0] == _TAG]
    return said == [(_SHORT, 1, 1)] or (not said and XMP not in data[:SEARCHED_BYTES])


def _find_exif(data: bytes) -> int:
    """Return where the EXIF data of a JPEG begin; 0 unless plain segments alone precede them."""
    for marker, place in itertools.islice(walk_segments(data), _MOST_SEGMENTS):
        if marker == _APP1 and data[place + 4 : place + 10] == EXIF:
            return place + 10
        if marker not in _MARKERS:
            break
    return 0

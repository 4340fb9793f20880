"""The orientation that an image file states, as Pillow and as the served model read it."""

from __future__ import annotations

import itertools
import struct

from PIL import Image

from components.images.jpeg_frame import SEARCHED_BYTES, walk_segments
from components.images.tensorflow_decoder import read_orientation

EXIF, XMP = b"Exif\0\0", b"tiff:Orientation"
"""Any file with an orientation, except PNGs, has one of them in its first bytes."""

_TAG, _SHORT = 0x0112, 3
_APP1 = 0xE1
# Application and comment segments, which may precede EXIF data.
_MARKERS = frozenset({*range(0xE0, 0xF0), 0xFE})
_MOST_SEGMENTS = 100
# More tags than any writer of EXIF data uses.
_MOST_ENTRIES = 1000
# Where a PNG may state an orientation.
_PNG_EXIF = b"eXIf"
_PNG_PLACES = (_PNG_EXIF, b"Raw profile type exif", b"XML:com.adobe.xmp")


def find_orientation(data: bytes, image: Image.Image) -> int:
    """Return the orientation in an image's metadata, 1 to 8; 1 is upright."""
    if image.format == "PNG" and not any(name in data for name in _PNG_PLACES):
        return 1  # Pillow would decode the whole image to find out.
    try:
        return int(image.getexif().get(_TAG, 1))
    except Exception:  # Broken EXIF is common and no reason to lose an image.
        return 1


def is_upright(data: bytes, image: Image.Image) -> bool:
    """Return whether Pillow and TensorFlow's graph agree that an image is upright.

    They may disagree on damaged, misplaced or duplicate metadata, and the graph must not turn
    images that are stored as they are.
    """
    if find_orientation(data, image) != 1:
        return False
    silent = _is_silent(data) and (image.format != "PNG" or _PNG_EXIF not in data)
    return silent or _states_upright(data) or read_orientation(data) == 1


def is_plainly_upright(data: bytes) -> bool:
    """Return whether a JPEG is certainly upright; False for odd metadata."""
    return _is_silent(data) or _states_upright(data)


def _is_silent(data: bytes) -> bool:
    head = data[:SEARCHED_BYTES]
    return not any(word in head for word in (EXIF, XMP))


def _states_upright(data: bytes) -> bool:
    """Return whether a JPEG states once, and clearly, that it is upright.

    TensorFlow's graph would take a millisecond. Source: CIPA DC-008 (EXIF 2.32), 4.5.4 and 4.6.
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
    except struct.error:  # Truncated, or of unknown byte order.
        return False
    if count > _MOST_ENTRIES:
        return False
    stated = [entry[1:] for entry in entries if entry[0] == _TAG]
    return stated == [(_SHORT, 1, 1)] or (not stated and XMP not in data[:SEARCHED_BYTES])


def _find_exif(data: bytes) -> int:
    """Return the offset of a JPEG's EXIF data; 0 unless only plain segments precede them."""
    for marker, place in itertools.islice(walk_segments(data), _MOST_SEGMENTS):
        if marker == _APP1 and data[place + 4 : place + 10] == EXIF:
            return place + 10
        if marker not in _MARKERS:
            break
    return 0

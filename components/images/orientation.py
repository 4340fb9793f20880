"""The orientation that an image file states, as Pillow and as the served model read it."""

from __future__ import annotations

import itertools
import struct

from PIL import Image

from components.images.jpeg_frame import MOST_SEGMENTS, SEARCHED_BYTES, walk_segments
from components.images.tensorflow_decoder import read_orientation

_EXIF, _XMP = b"Exif\0\0", b"tiff:Orientation"
_PNG_EXIF = b"eXIf"
_PNG_PLACES = (_PNG_EXIF, b"Raw profile type exif", b"XML:com.adobe.xmp")

_TAG, _SHORT = 0x0112, 3
_APP1 = 0xE1
_BYTE_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}
# More tags than any writer of EXIF data uses.
_MOST_ENTRIES = 1000


def find_orientation(data: bytes, image: Image.Image) -> int:
    """Return the orientation that Pillow finds, 1 to 8; 1 is upright."""
    if image.format == "PNG" and not any(name in data for name in _PNG_PLACES):
        return 1  # Pillow would decode the whole image to find out.
    try:
        orientation = int(image.getexif().get(_TAG, 1))
    except Exception:  # Broken EXIF is common and no reason to lose an image.
        return 1
    return orientation if 1 <= orientation <= 8 else 1


def agreed_orientation(data: bytes, image: Image.Image) -> int | None:
    """Return the orientation that both Pillow and TensorFlow's graph read; None if they differ.

    They may disagree on damaged, misplaced or duplicate metadata.
    """
    found = find_orientation(data, image)
    return found if found == (state_orientation(data) or read_orientation(data)) else None


def state_orientation(data: bytes) -> int | None:
    """Return the orientation that TensorFlow's graph reads; None if the metadata are odd.

    For a JPEG, other readers find the same. The graph would take a millisecond.

    Source: CIPA DC-008 (EXIF 2.32), 4.5.4 and 4.6.
    """
    found, end = [], 0
    for marker, place in itertools.islice(walk_segments(data), MOST_SEGMENTS):
        start, end = place + 10, place + 2 + int.from_bytes(data[place + 2 : place + 4], "big")
        if marker == _APP1 and data[place + 4 : start] == _EXIF:
            found.append(data[start : min(end, SEARCHED_BYTES)])
    in_png = data.startswith(b"\x89PNG") and _PNG_EXIF in data
    in_xmp = data.find(_XMP, 0, max(end, SEARCHED_BYTES)) >= 0
    if not (found or in_png or in_xmp):
        return 1
    try:
        [exif] = found
        stated = _read_tags(exif)
    except (KeyError, ValueError, struct.error):  # Truncated, repeated, or out of place.
        return None
    if not stated:
        return None if in_xmp else 1
    [kind, count, value] = stated[0]
    is_plain = len(stated) == count == 1 and kind == _SHORT and 1 <= value <= 8
    return value if is_plain else None


def _read_tags(exif: bytes) -> list[tuple[int, int, int]]:
    """Return type, count and value of each orientation in the first directory of EXIF data."""
    order = _BYTE_ORDERS[exif[:4]]
    [directory] = struct.unpack_from(f"{order}I", exif, 4)
    [count] = struct.unpack_from(f"{order}H", exif, directory)
    if count > _MOST_ENTRIES:
        raise ValueError(f"{count} tags")
    entries = [
        struct.unpack_from(f"{order}HHIH", exif, directory + 2 + 12 * number)
        for number in range(count)
    ]
    return [entry[1:] for entry in entries if entry[0] == _TAG]

"""The segments and the orientation of a JPEG; `upright.py` reads them in the graph.

Source: ITU-T T.81, B.1.1 (markers).
"""

import itertools
import re
import struct
from collections.abc import Iterator
from typing import Literal

SEARCHED_BYTES = 65_536
"""Where ingest and the served model look for the orientation: JPEGs have their metadata at the
beginning, and PNGs their XMP."""

MOST_SEGMENTS = 1000
"""More segments than any program writes."""

SCAN, END, FILL = 0xDA, 0xD9, 0xFF
"""Markers: start of scan; end of image; fill byte, any number of which may precede a marker."""
WITHOUT_LENGTH = frozenset({0x00, 0x01, *range(0xD0, 0xDA)})
"""Markers that no length follows."""
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""All frames."""

START = b"\xff\xd8"
"""The first bytes of a JPEG."""

_MARKER = 0xFF

ORIENTATION_TAG = 0x0112
"""Tag of the orientation in EXIF data."""
_EXIF, _XMP, _PNG_EXIF = b"Exif\0\0", b"tiff:Orientation", b"eXIf"
_APP1, _SHORT = 0xE1, 3
_BYTE_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}
_XMP_VALUE = re.compile(rb"tiff:Orientation(?:=\"|>)([1-8])")
# Capacity of a segment.
_MOST_EXIF = 65_536
# More tags than any writer of EXIF data uses.
_MOST_ENTRIES = 1000


def walk_segments(file: bytes | memoryview) -> Iterator[tuple[int, int]]:
    """Yield marker and offset of each segment, up to and including the first scan.

    Stop before a scan where the segments are out of order.
    """
    place, last = 2, len(file) - 4
    while place <= last and file[place] == _MARKER:
        marker = file[place + 1]
        if marker in WITHOUT_LENGTH:
            return
        yield marker, place
        if marker == SCAN:
            return
        place += 1 if marker == FILL else 2 + int.from_bytes(file[place + 2 : place + 4], "big")


def state_orientation(data: bytes) -> int | None:
    """Return the orientation that TensorFlow's graph reads; None if the metadata are odd.

    For a JPEG, other readers find the same. The graph would take a millisecond.

    Source: CIPA DC-008 (EXIF 2.32), 4.5.4 and 4.6.
    """
    segments, end = [], 0
    for marker, place in itertools.islice(walk_segments(data), MOST_SEGMENTS):
        start, end = place + 10, place + 2 + int.from_bytes(data[place + 2 : place + 4], "big")
        if marker == _APP1 and data[place + 4 : start] == _EXIF:
            segments.append(data[start : min(end, SEARCHED_BYTES)])
    in_png = data.startswith(b"\x89PNG") and _PNG_EXIF in data
    in_xmp = data.rfind(_XMP, 0, max(end, SEARCHED_BYTES)) >= 0
    if not (segments or in_png or in_xmp):
        return 1
    try:
        [exif] = segments
        stated = _read_tags(exif)
    except (KeyError, ValueError, struct.error):  # Truncated, repeated, or out of place.
        return None
    if not stated:
        return None if in_xmp else 1
    [kind, count, value] = stated[0]
    is_plain = len(stated) == count == 1 and kind == _SHORT and 1 <= value <= 8
    return value if is_plain else None


def read_orientation(data: bytes) -> int:
    """Return the orientation that TensorFlow's graph reads of any file; 1 without one.

    `upright.read_orientations` is the graph, odd metadata included.
    """
    if stated := state_orientation(data):
        return stated
    heads = data[:SEARCHED_BYTES]
    start = 0
    if data.startswith(b"\x89PNG"):
        start = data.find(_PNG_EXIF) + 4
    elif _EXIF in heads or _XMP in heads:
        start = _find_exif(data)
    in_exif = _read_directory(data[start : start + _MOST_EXIF]) if start > 4 else 0
    in_xmp = _XMP_VALUE.search(heads)
    return in_exif or (int(in_xmp[1]) if in_xmp else 1)


def _find_exif(data: bytes) -> int:
    """Return the offset of the first EXIF data in a JPEG, or 0."""
    for marker, place in itertools.islice(walk_segments(data), MOST_SEGMENTS + 1):
        if marker == _APP1 and data[place + 4 : place + 10] == _EXIF:
            return place + 10
    return 0


def _read_directory(tiff: bytes) -> int:
    """Return the orientation in the first directory of EXIF data, or 0; zeros surround it."""
    order: Literal["little", "big"] = "little" if tiff[:1] == b"I" else "big"

    def read(place: int, length: int, *, signed: bool = False) -> int:
        places = range(place, place + length)
        content = bytes(tiff[at] if 0 <= at < len(tiff) else 0 for at in places)
        return int.from_bytes(content, order, signed=signed)

    directory = read(4, 4, signed=True)  # As in the graph.
    values = [0]
    for number in range(min(read(directory, 2), 1024) if len(tiff) > 8 else 0):
        place = directory + 2 + 12 * number
        size = {1: 1, 3: 2, 4: 4}.get(read(place + 2, 2), 0)
        if read(place, 2) == ORIENTATION_TAG and read(place + 4, 4) == 1:
            values.append(read(place + 8, size))
    return max(value for value in values if value <= 8)


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
    return [entry[1:] for entry in entries if entry[0] == ORIENTATION_TAG]

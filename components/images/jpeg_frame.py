"""The segments and the frame header of a JPEG, in Python; `upright.py` walks them in the graph.

Source: ITU-T T.81, B.1.1 (markers), B.2.2 (frame header), A.2 (order of blocks).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

SEARCHED_BYTES = 65_536
"""Where ingest and the served model look for the orientation: JPEGs have their metadata at the
beginning, and PNGs their XMP."""

MOST_SEGMENTS = 1000
"""More segments than any program writes."""

SCAN, END, FILL = 0xDA, 0xD9, 0xFF
"""Markers: start of scan; end of image; fill byte, any number of which may precede a marker."""
WITHOUT_LENGTH = frozenset({0x00, 0x01, *range(0xD0, 0xDA)})
"""Markers that no length follows."""
SEQUENTIAL, PROGRESSIVE = frozenset({0xC0, 0xC1}), 0xC2
"""Frames that every decoder knows; the others are arithmetic, lossless or hierarchical."""
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""All frames."""

_START, _MARKER = b"\xff\xd8", 0xFF
_BLOCK, _BITS = 8, 8
# Offsets in a frame header: bits of a sample, rows, columns, components.
_PRECISION, _ROWS, _COLUMNS, _COMPONENTS, _FIRST = 4, 5, 7, 9, 10


class Frame(NamedTuple):
    """The content of a frame header."""

    height: int
    """Pixels."""
    width: int
    unit_rows: int
    """Rows of a minimum coded unit."""
    sequential: bool
    """Whether rows follow one another, instead of several passes over the image."""
    rows_at: int
    """Offset of the height in the file, two bytes."""


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
        place += 1 if marker == FILL else 2 + _word(file, place + 2)


def read_frame(file: bytes | memoryview) -> Frame | None:
    """Read the frame header of an 8-bit JPEG, sequential or progressive.

    Return None for any other file, and if segments are out of order before the frame.
    """
    if bytes(file[:2]) != _START:
        return None
    for marker, place in walk_segments(file):
        if marker in SEQUENTIAL or marker == PROGRESSIVE:
            whole = len(file) >= place + _FIRST
            return _parse(file, place, sequential=marker in SEQUENTIAL) if whole else None
        if marker == FILL:
            return None
    return None


def _parse(file: bytes | memoryview, start: int, *, sequential: bool) -> Frame | None:
    components = file[start + _COMPONENTS]
    samplings = bytes(file[start + _FIRST + 1 : start + _FIRST + 3 * components : 3])
    height, width = _word(file, start + _ROWS), _word(file, start + _COLUMNS)
    if not (height and width and samplings) or file[start + _PRECISION] != _BITS:
        return None
    unit_rows = _BLOCK * max(sampling % 16 for sampling in samplings)
    return Frame(height, width, unit_rows, sequential, start + _ROWS)


def _word(file: bytes | memoryview, position: int) -> int:
    return file[position] << 8 | file[position + 1]


def upper_rows(file: bytes | memoryview, frame: Frame, rows: int) -> bytes | memoryview:
    """Return a JPEG of at least the first `rows` rows, with unchanged pixels.

    A decoder reads as many rows as the header states, so it never decodes the rest of a sequential
    JPEG. One more unit is kept, as chroma is interpolated from adjacent rows.
    """
    units = -(-rows // frame.unit_rows) + 1
    kept = units * frame.unit_rows
    if not frame.sequential or kept >= frame.height:
        return file
    at = frame.rows_at
    return b"".join([file[:at], kept.to_bytes(2, "big"), file[at + 2 :]])

"""The head of a JPEG: its segments, and the frame among them; in Python, a file at a time.

`jpeg_segments.py` has the same in TensorFlow's graph.

Source: ITU-T T.81, B.1.1 (markers), B.2.2 (frame header), A.2 (order of blocks).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

SCAN, FILL = 0xDA, 0xFF
"""Markers: the start of a scan; a byte of which any number may precede a marker."""
SEQUENTIAL, PROGRESSIVE = frozenset({0xC0, 0xC1}), 0xC2
"""Frames that every decoder knows; the others are arithmetic, lossless or hierarchical."""
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""All frames."""

_START, _MARKER = b"\xff\xd8", 0xFF
_WITHOUT_LENGTH = frozenset({0x00, 0x01, *range(0xD0, 0xDA)})
_BLOCK, _BITS = 8, 8
# Positions in a frame header of the bits of a sample, rows, columns and components.
_PRECISION, _ROWS, _COLUMNS, _COMPONENTS, _FIRST = 4, 5, 7, 9, 10


class Frame(NamedTuple):
    """What the header of a frame says."""

    height: int
    """Pixels."""
    width: int
    unit_rows: int
    """Rows of a minimum coded unit."""
    sequential: bool
    """Whether rows come one after the other, not in several passes over the image."""
    rows_at: int
    """Where the height stands in the file, two bytes."""


def walk_segments(file: bytes | memoryview) -> Iterator[tuple[int, int]]:
    """Yield the marker of each segment up to the first scan, that included, and where it begins.

    Ends without a scan where no plain sequence of segments goes on.
    """
    place, last = 2, len(file) - 4
    while place <= last and file[place] == _MARKER:
        marker = file[place + 1]
        if marker in _WITHOUT_LENGTH:
            return
        yield marker, place
        if marker == SCAN:
            return
        place += 1 if marker == FILL else 2 + (file[place + 2] << 8 | file[place + 3])


def read_frame(file: bytes | memoryview) -> Frame | None:
    """Read the frame header of a JPEG of 8 bits, sequential or progressive.

    None for anything else, and where segments do not follow one another up to the frame.
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
    """Return a JPEG of at least the first `rows` rows, which have the same pixels.

    A decoder reads no further than the header says that there are rows: in a sequential JPEG it
    comes to the end without having decoded what lies below. It goes on for a unit more than is
    needed, as colours are interpolated from the rows next to them.
    """
    units = -(-rows // frame.unit_rows) + 1
    kept = units * frame.unit_rows
    if not frame.sequential or kept >= frame.height:
        return file
    at = frame.rows_at
    return b"".join([file[:at], kept.to_bytes(2, "big"), file[at + 2 :]])

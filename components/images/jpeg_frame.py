"""The frame of a JPEG: its size and its blocks, and where its header says so.

Source: ITU-T T.81, B.1.1 (markers), B.2.2 (frame header), A.2 (order of blocks).
"""

from __future__ import annotations

from typing import NamedTuple

_START = b"\xff\xd8"
# Those that every decoder knows; the others are arithmetic, lossless or hierarchical.
_SEQUENTIAL, _PROGRESSIVE = frozenset({0xC0, 0xC1}), 0xC2
_WITHOUT_LENGTH = frozenset({0x00, 0x01, *range(0xD0, 0xDB), 0xFF})
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


def read_frame(file: bytes | memoryview) -> Frame | None:
    """Read the frame header of a JPEG of 8 bits, sequential or progressive.

    None for anything else, and where segments do not follow one another up to the frame.
    """
    if bytes(file[:2]) != _START:
        return None
    position = 2
    while len(file) >= position + _FIRST and file[position] == 0xFF:
        marker = file[position + 1]
        if marker in _SEQUENTIAL or marker == _PROGRESSIVE:
            return _parse(file, position, sequential=marker in _SEQUENTIAL)
        if marker in _WITHOUT_LENGTH:
            return None
        position += 2 + _word(file, position + 2)
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

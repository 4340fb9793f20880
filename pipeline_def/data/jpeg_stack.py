"""Small JPEGs joined into one tall JPEG, which libjpeg-turbo decodes in a single call.

To set up a decoder and to call it takes a quarter of the time that an image of 32 pixels does.
JPEGs of one encoder and size have the same header; their scans, with restart markers in between,
are the scan of an image that shows them one below the other. A restart resets all that the decoder
carries from block to block, and colours that are not halved from row to row are not interpolated
across rows: the pixels are those of the images by themselves.

Source: ITU-T T.81, B.1.1 (markers), B.2.2 (frame header), B.2.4.4 (restart interval).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import simplejpeg

from components.images.jpeg_frame import FILL, FRAMES, SCAN, walk_segments
from pipeline_def.data.batch_memory import Pixels

# libjpeg takes no more rows (JPEG_MAX_DIMENSION).
_MOST_ROWS = 65_500

_END = b"\xff\xd9"
_BASELINE, _RESTART_INTERVAL = 0xC0, 0xDD
_RESTARTS = [bytes([0xFF, 0xD0 + number]) for number in range(8)]

_BLOCK = 8
_COMPONENTS = 3
_SEGMENTS = 32


@dataclass(frozen=True)
class _Header:
    """What JPEGs that can be joined have in common."""

    content: bytes
    """All bytes before the entropy-coded ones."""
    rows_at: int
    """Where the number of rows stands in it."""
    scan_at: int
    """Where its start of scan begins."""
    units: int
    """Minimum coded units of an image."""

    def joined(self, rows: int) -> bytes:
        """Return the header of an image of so many rows, with a restart after every image."""
        after, scan = self.content[self.rows_at + 2 : self.scan_at], self.content[self.scan_at :]
        height = rows.to_bytes(2, "big")
        interval = b"\xff\xdd\x00\x04" + self.units.to_bytes(2, "big")
        return b"".join([self.content[: self.rows_at], height, after, interval, scan])


def decode_joined(files: Sequence[memoryview], out: Pixels) -> list[int]:
    """Decode those of `files` that can be joined into `out`, uint8 [files, side, side, 3].

    Returns:
        The numbers of the files that are still to be decoded, each by itself.
    """
    header = _read_header(files[0], out.shape[1])
    if header is None:
        return list(range(len(files)))
    most = _MOST_ROWS // out.shape[1]
    others: list[int] = []
    for start in range(0, len(files), most):
        part = slice(start, start + most)
        others += [start + number for number in _decode_stack(header, files[part], out[part])]
    return others


def _decode_stack(header: _Header, files: Sequence[memoryview], out: Pixels) -> list[int]:
    (count, side), length, content = out.shape[:2], len(header.content), header.content
    others = [
        number
        for number, file in enumerate(files)
        if bytes(file[:length]) != content or bytes(file[-2:]) != _END
    ]
    if 2 * len(others) > count:
        return list(range(count))
    scans = [file[length:-2] for file in files]
    joinable = next(scan for number, scan in enumerate(scans) if number not in others)
    for number in others:
        scans[number] = joinable  # It only takes up the place.
    parts: list[bytes | memoryview] = [_END] * (2 * count + 1)
    parts[0] = header.joined(count * side)
    parts[1::2] = scans
    parts[2:-1:2] = (_RESTARTS * (count // len(_RESTARTS) + 1))[: count - 1]
    tall = out.reshape(count * side, side, _COMPONENTS)
    try:
        simplejpeg.decode_jpeg(b"".join(parts), "RGB", buffer=tall)
    except (ValueError, KeyError):
        # One of them is not whole; the decoder does not say which.
        return list(range(count))
    return others


def _read_header(file: memoryview, side: int) -> _Header | None:
    """Return the header of a JPEG; None if it cannot be joined with others of that size."""
    frame = 0
    for marker, place in itertools.islice(walk_segments(file), _SEGMENTS):
        if marker in FRAMES:
            frame = place
        elif marker in (FILL, _RESTART_INTERVAL):
            return None
        elif marker == SCAN and frame:
            units = _units(file[frame : frame + 19], side)
            if not units or file[place + 4] != _COMPONENTS:
                return None
            after = place + 2 + _word(file, place + 2)
            return _Header(bytes(file[:after]), frame + 5, place, units)
    return None


def _units(frame: memoryview, side: int) -> int:
    """Return the minimum coded units of an image; 0 if images cannot stand on one another."""
    expected = [_BASELINE, 8, side, side, _COMPONENTS]
    found = [frame[1], frame[4], _word(frame, 5), _word(frame, 7), frame[9]]
    if found != expected or side % _BLOCK:
        return 0
    samplings = frame[11:19:3].tolist()
    # Rows of colours that are halved are interpolated, across the border between two images.
    if any(sampling % 16 != 1 for sampling in samplings):
        return 0
    across = max(sampling // 16 for sampling in samplings)
    return -(-side // (_BLOCK * across)) * (side // _BLOCK)


def _word(content: memoryview, position: int) -> int:
    return int.from_bytes(content[position : position + 2], "big")

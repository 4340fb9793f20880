"""JPEG files: their segments and orientation, and a fast check with libjpeg-turbo.

`upright.py` reads segments and orientation in the graph. Source: ITU-T T.81, B.1.1 (markers).
"""

import dataclasses
import itertools
import re
import struct
from collections.abc import Iterator

import simplejpeg

from components.images.check_result import Category, CheckedImage, Rejected, check_size
from components.images.options import ImageOptions
from components.images.transcode import (
    Pixels,
    make_thumbprint,
    mean_luminance,
    shrink,
    to_jpeg,
    turn,
)

SEARCHED_BYTES = 65_536
"""Where ingest and the served model look for the orientation: JPEGs have their metadata at the
beginning, and PNGs their XMP."""

MOST_SEGMENTS = 1000
"""More segments than any program writes."""

SCAN, _END, _FILL = 0xDA, 0xD9, 0xFF
"""Markers: start of scan; end of image; fill byte, any number of which may precede a marker."""
WITHOUT_LENGTH = frozenset({0x00, 0x01, *range(0xD0, 0xDA)})
"""Markers that no length follows."""
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}

START = b"\xff\xd8"
"""The first bytes of a JPEG."""

ORIENTATION_TAG = 0x0112
"""Tag of the orientation in EXIF data."""
_EXIF, _PNG_EXIF, _APP1, _SHORT = b"Exif\0\0", b"eXIf", 0xE1, 3
_BYTE_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}
_TURNED_BY_XMP = re.compile(rb"tiff:Orientation(?:=\"|>)[2-8]")
# More tags than any writer of EXIF data uses.
_MOST_ENTRIES = 1000

# Sequential and progressive frames, which every decoder knows; the others are arithmetic, lossless
# or hierarchical.
_SEQUENTIAL = frozenset({0xC0, 0xC1})
_PLAIN_FRAMES = _SEQUENTIAL | {0xC2}

# Programs write about ten scans, each a pass over the whole image. Ingest has time, and a rejected
# file is lost; a server has none.
MOST_SCANS_STORED = 250
MOST_SCANS_ASKED = 60

# Cameras pad files with zeros after the end of the image; search for it this far back.
_TAIL = 4096
# More than in any file, even with a depth map in its metadata.
_MOST_MARKERS = 10_000
# Within entropy-coded data, zeros or a restart follow 0xFF.
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")

# Visible damage, in libjpeg's words; it also warns of harmless oddities.
_DAMAGE = {"premature end": Category.TRUNCATED, "bad huffman": Category.UNREADABLE}


def _walk_segments(file: bytes | memoryview) -> Iterator[tuple[int, int]]:
    """Yield marker and offset of each segment, up to and including the first scan.

    Stop before a scan where the segments are out of order.
    """
    place, last = 2, len(file) - 4
    while place <= last and file[place] == _FILL:
        marker = file[place + 1]
        if marker in WITHOUT_LENGTH:
            return
        yield marker, place
        if marker == SCAN:
            return
        place += 1 if marker == _FILL else 2 + int.from_bytes(file[place + 2 : place + 4], "big")


def state_orientation(data: bytes) -> int | None:
    """Return the orientation of a JPEG or PNG, 1 to 8; None where readers may find different ones.

    The graph reads it as well, in a millisecond.

    Source: CIPA DC-008 (EXIF 2.32), 4.5.4 and 4.6.
    """
    segments, end = [], 0
    for marker, place in itertools.islice(_walk_segments(data), MOST_SEGMENTS):
        start, end = place + 10, place + 2 + int.from_bytes(data[place + 2 : place + 4], "big")
        if marker == _APP1 and data[place + 4 : start] == _EXIF:
            segments.append(data[start : min(end, SEARCHED_BYTES)])
    if data.startswith(b"\x89PNG") and (place := data.find(_PNG_EXIF)) >= 0:
        segments = [data[place + len(_PNG_EXIF) :]]
    try:
        stated = [tag for exif in segments for tag in _read_tags(exif)]
    except (KeyError, ValueError, struct.error):  # Truncated, or out of place.
        return None
    kind, count, value = stated[0] if stated else (_SHORT, 1, 0)
    if len(segments) > 1 or len(stated) > 1 or (kind, count) != (_SHORT, 1):
        return None
    if 1 <= value <= 8:
        return value
    return None if _TURNED_BY_XMP.search(data, 0, max(end, SEARCHED_BYTES)) else 1


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


def check_jpeg(data: bytes, config: ImageOptions) -> CheckedImage | None:
    """Check a JPEG in gray or color; return None to leave it to Pillow.

    A file that EXIF turns is kept as it is. To turn its coefficients without loss takes a hundred
    times as long as this check of the header, to encode its pixels anew also costs quality, and
    whoever reads examples here, the served graph included, reads EXIF anyway.

    All coefficients and the luma of all pixels are decoded. That finds the same damage as decoding
    all channels, which is in the entropy-coded stream, in three quarters of the time.

    Raises:
        Rejected: damaged, too large or too small.
    """
    try:
        height, width, colors, _ = simplejpeg.decode_jpeg_header(data)
    except Exception:  # KeyError for rare subsampling, MemoryError for false sizes.
        return None
    plain, one_scan = _read_head(data)
    if not one_scan:
        check_scans(data, MOST_SCANS_STORED)
    orientation = state_orientation(data) if plain else None
    if colors not in ("YCbCr", "RGB", "Gray") or not orientation:
        return None
    check_size(width, height, config)
    return _decode_jpeg(
        data, width, height, gray=colors == "Gray", orientation=orientation, config=config
    )


def check_scans(data: bytes, most: int) -> bool:
    """Reject a JPEG with so many scans that a small file could take minutes to decode.

    Return whether the image ends within the file. What follows its end does not count: phones
    append videos, depth maps and other images.
    """
    place = scans = 0
    for _ in range(_MOST_MARKERS):
        match = _MARKER.search(data, place)
        if not match or data[match.start() + 1] == _END:
            return match is not None
        place, marker = match.end(), data[match.start() + 1]
        if marker not in WITHOUT_LENGTH:
            place += int.from_bytes(data[place : place + 2], "big")
        scans += marker == SCAN
        if scans > most:
            raise Rejected(Category.UNSUPPORTED, f"JPEG: more than {most} scans")
    raise Rejected(Category.UNSUPPORTED, f"JPEG: more than {_MOST_MARKERS:,} markers")


def is_plain(data: bytes) -> bool:
    """Return whether every decoder reads the pixels, that of the served model included.

    Segments must follow one another up to the frame: some decoders skip bytes in between. The frame
    must be sequential or progressive, with 8 bits: TensorFlow's libjpeg decodes neither arithmetic
    nor lossless ones.
    """
    return _read_head(data)[0]


def _read_head(data: bytes) -> tuple[bool, bool]:
    """Read the segments before the image.

    Returns:
        What `is_plain` says; and whether the first scan holds the whole image, so decoders stop
        there.
    """
    frame = scan = 0
    for marker, place in itertools.islice(_walk_segments(data), MOST_SEGMENTS):
        frame = place if marker in _FRAMES else frame
        scan = place if marker == SCAN else 0
    code, bits, components = (data[frame + at : frame + at + 1] for at in (1, 4, 9))
    plain = frame > 0 and code[0] in _PLAIN_FRAMES and bits == b"\x08"
    sequential = frame > 0 and code[0] in _SEQUENTIAL
    one_scan = scan > 0 and sequential and data[scan + 4 : scan + 5] == components != b""
    return plain, one_scan


def _decode_jpeg(
    data: bytes, width: int, height: int, *, gray: bool, orientation: int, config: ImageOptions
) -> CheckedImage | None:
    """Decode a JPEG as `config` asks; return None to leave it to another decoder.

    Raises:
        Rejected: damaged.
    """
    channels = 1 if gray else 3
    smaller = config.is_shrunk(width, height)
    seen = (width, height) if orientation >= 5 else (height, width)
    if config.check == "header" and not smaller and _is_whole(data):
        return CheckedImage(data, "jpeg", *seen, channels, None)
    try:
        if smaller and config.shrink:
            pixels = shrink(_decode_small(data, gray, config.shrink), side=config.shrink)
            pixels = turn(pixels, orientation)
            stored = to_jpeg(pixels, quality=config.quality)
            return dataclasses.replace(stored, thumbprint=make_thumbprint(pixels, config))
        luma = simplejpeg.decode_jpeg(data, "GRAY")[..., 0]
    except Exception as error:
        for words, category in _DAMAGE.items():
            if words in str(error).lower():
                raise Rejected(category, f"JPEG: {error}") from error
        return None
    thumbprint = make_thumbprint(luma, config, orientation=orientation)
    return CheckedImage(data, "jpeg", *seen, channels, mean_luminance(luma), thumbprint)


def _is_whole(data: bytes) -> bool:
    return data.rfind(bytes([0xFF, _END]), -_TAIL) >= 0 or check_scans(data, MOST_SCANS_STORED)


def _decode_small(data: bytes, gray: bool, side: int) -> Pixels:
    """Decode to at least twice the wanted size; libjpeg shrinks much larger images on the way."""
    pixels: Pixels = simplejpeg.decode_jpeg(
        data, "GRAY" if gray else "RGB", min_height=2 * side, min_width=2 * side, min_factor=2
    )
    return pixels[..., 0] if gray else pixels

"""The fast check of JPEG files: libjpeg-turbo, without Pillow."""

import dataclasses
import itertools
import re

import simplejpeg

from components.images.check_result import Category, CheckedImage, Rejected
from components.images.jpeg_frame import (
    END,
    FRAMES,
    MOST_SEGMENTS,
    SCAN,
    WITHOUT_LENGTH,
    state_orientation,
    walk_segments,
)
from components.images.options import ImageOptions
from components.images.transcode import (
    Pixels,
    make_thumbprint,
    mean_luminance,
    shrink,
    to_jpeg,
    turn,
)

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

# libjpeg's scaled pixels are not the means of areas that the served graph computes. Of photographs
# 362 pixels high that are shrunk to 32, decoding at least 2, 4 or 6 times as many pixels differs by
# 1.9, 1.3 or 0.1 of 255 levels; for 12 megapixels and 256, it takes 50, 55 or 89 ms.
_SCALE = 6

# Visible damage, in libjpeg's words; it also warns of harmless oddities.
_DAMAGE = {"premature end": Category.TRUNCATED, "bad huffman": Category.UNREADABLE}


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
    config.check_size(width, height)
    return decode_jpeg(
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
        if not match or data[match.start() + 1] == END:
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


def _find_frame_and_scan(data: bytes) -> tuple[int, int]:
    """Return the offsets of the last frame and the first scan; 0 for one that is not reached."""
    frame = 0
    for marker, place in itertools.islice(walk_segments(data), MOST_SEGMENTS):
        if marker == SCAN:
            return frame, place
        if marker in FRAMES:
            frame = place
    return frame, 0


def _read_head(data: bytes) -> tuple[bool, bool]:
    """Read the segments before the image.

    Returns:
        What `is_plain` says; and whether the first scan holds the whole image, so decoders stop
        there.
    """
    frame, scan = _find_frame_and_scan(data)
    code, bits, components = (data[frame + at : frame + at + 1] for at in (1, 4, 9))
    plain = frame > 0 and code[0] in _PLAIN_FRAMES and bits == b"\x08"
    sequential = frame > 0 and code[0] in _SEQUENTIAL
    one_scan = scan > 0 and sequential and data[scan + 4 : scan + 5] == components != b""
    return plain, one_scan


def decode_jpeg(
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
            scaled = _decode_small(data, gray, config.shrink)
            pixels = turn(shrink(scaled, side=config.shrink, shape=(height, width)), orientation)
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
    return data.rfind(bytes([0xFF, END]), -_TAIL) >= 0 or check_scans(data, MOST_SCANS_STORED)


def _decode_small(data: bytes, gray: bool, side: int) -> Pixels:
    """Decode to several times the wanted size; libjpeg shrinks much larger images on the way."""
    least = _SCALE * side
    pixels: Pixels = simplejpeg.decode_jpeg(
        data, "GRAY" if gray else "RGB", min_height=least, min_width=least, min_factor=2
    )
    return pixels[..., 0] if gray else pixels

"""The fast way for plain JPEG files, most of all images: libjpeg-turbo, without Pillow."""

from __future__ import annotations

import numpy as np
import simplejpeg

from components.images.check_result import Category, CheckedImage, Rejected, check_size
from components.images.jpeg_frame import (
    FRAMES,
    PROGRESSIVE,
    SCAN,
    SEARCHED_BYTES,
    SEQUENTIAL,
    walk_segments,
)
from components.images.options import ImageOptions
from components.images.orientation import EXIF, XMP
from components.images.transcode import Pixels, mean_luminance, shrink, to_jpeg

START = b"\xff\xd8"
_END = b"\xff\xd9"
# The two bytes that begin a scan, as a number; NumPy finds them six times as fast in a long file.
_SCAN_PAIR, _LONG = 0xDAFF, 2**13
_PLAIN_FRAMES = SEQUENTIAL | {PROGRESSIVE}

# Cameras and programs write about ten, each of which passes over the whole image. Ingest has time,
# and would lose an odd file for good; who answers at once has none to lose.
MOST_SCANS_STORED = 250
MOST_SCANS_ASKED = 60

# How far before the end of the file the end of the image is looked for: cameras pad with zeros.
_TAIL = 4096

# What libjpeg says of damage that shows. It warns of harmless oddities as well.
_DAMAGE = {"premature end": Category.TRUNCATED, "bad huffman": Category.UNREADABLE}


def check_jpeg(data: bytes, config: ImageOptions) -> CheckedImage | None:
    """Check a JPEG that needs no turning and is gray or colour; None where Pillow has to look.

    Every coefficient is decoded, and the luma of every pixel computed. That takes three quarters
    of the time of all three channels and finds the same damage: what can be damaged is the
    entropy-coded stream, and it is read to its end.

    Raises:
        Rejected: damaged, too large or too small.
    """
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
    except Exception:  # KeyError for a rare subsampling, MemoryError for sizes that lie.
        return None
    plain, one_scan = _read_head(data)
    if not one_scan:
        check_scans(data, MOST_SCANS_STORED)
    # Whether it has to be turned is in its metadata, which Pillow reads.
    if colours not in ("YCbCr", "RGB", "Gray") or not plain:
        return None
    check_size(width, height, config)
    return decode_jpeg(data, width, height, gray=colours == "Gray", config=config)


def check_scans(data: bytes, most: int) -> None:
    """Reject a JPEG with so many scans that a small file could take minutes to decode."""
    scans = _count_scans(data)
    if scans > most:
        raise Rejected(Category.UNSUPPORTED, f"JPEG: {scans} scans, above {most}")


def _count_scans(data: bytes) -> int:
    """Count how often the two bytes that begin a scan occur."""
    if len(data) < _LONG:
        return data.count(bytes((0xFF, SCAN)))
    pairs = (np.frombuffer(data, "<u2", (len(data) - first) // 2, first) for first in (0, 1))
    return sum(int(np.count_nonzero(of == _SCAN_PAIR)) for of in pairs)


def is_in_order(data: bytes) -> bool:
    """Say whether segment follows segment up to the frame, as the served model has it.

    Some decoders pass over bytes in between.
    """
    return _walk(data)[0] > 0


def _walk(data: bytes) -> tuple[int, int]:
    """Walk over the segments before the image, as the graph does.

    Returns:
        Where the last frame begins, or 0; and where the first scan does, or 0 where no plain
        sequence of segments leads to it.
    """
    frame = 0
    for marker, place in walk_segments(data):
        if marker == SCAN:
            return frame, place
        if marker in FRAMES:
            frame = place
    return frame, 0


def _read_head(data: bytes) -> tuple[bool, bool]:
    """Read the segments before the image.

    Returns:
        Whether they ask for no more than any decoder gives: in order, no orientation, and a frame
        of 8 bits, sequential or progressive; TensorFlow's libjpeg has no arithmetic decoder, nor a
        lossless one. And whether the first scan is the whole image, after which decoders stop.
    """
    frame, scan = _walk(data)
    code, bits, components = (data[frame + at : frame + at + 1] for at in (1, 4, 9))
    plain = frame > 0 and code[0] in _PLAIN_FRAMES and bits == b"\x08"
    sequential = frame > 0 and code[0] in SEQUENTIAL
    one_scan = scan > 0 and sequential and data[scan + 4 : scan + 5] == components != b""
    # EXIF data are a segment; XMP is looked for in what follows the pixels of a small file, too.
    end = scan or len(data)
    if EXIF in data[:end] or data.find(XMP, 0, max(end, SEARCHED_BYTES)) >= 0:
        plain = False
    return plain, one_scan


def decode_jpeg(
    data: bytes, width: int, height: int, *, gray: bool, config: ImageOptions
) -> CheckedImage | None:
    """Decode an upright JPEG as `config` asks; None where another decoder has to look.

    Raises:
        Rejected: damaged.
    """
    channels = 1 if gray else 3
    smaller = config.is_shrunk(width, height)
    if config.check == "header" and not smaller and data.rfind(_END, -_TAIL) >= 0:
        return CheckedImage(data, "jpeg", height, width, channels, None)
    try:
        if smaller and config.shrink:
            pixels = _decode_small(data, gray=gray, side=config.shrink)
            return to_jpeg(shrink(pixels, side=config.shrink), quality=config.quality)
        luma = simplejpeg.decode_jpeg(data, "GRAY")[..., 0]
    except Exception as error:
        for words, category in _DAMAGE.items():
            if words in str(error).lower():
                raise Rejected(category, f"JPEG: {error}") from error
        return None
    return CheckedImage(data, "jpeg", height, width, channels, mean_luminance(luma))


def _decode_small(data: bytes, *, gray: bool, side: int) -> Pixels:
    """Decode to at least twice the size wanted; libjpeg scales much larger images as it decodes."""
    pixels: Pixels = simplejpeg.decode_jpeg(
        data, "GRAY" if gray else "RGB", min_height=2 * side, min_width=2 * side, min_factor=2
    )
    return pixels[..., 0] if gray else pixels

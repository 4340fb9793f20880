"""The fast check of plain JPEG files: libjpeg-turbo, without Pillow."""

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
_PLAIN_FRAMES = SEQUENTIAL | {PROGRESSIVE}

# Programs write about ten scans, each a pass over the whole image. Ingest has time, and a rejected
# file is lost; a server has none.
MOST_SCANS_STORED = 250
MOST_SCANS_ASKED = 60

# Cameras pad files with zeros after the end of the image; search for it this far back.
_TAIL = 4096

# Visible damage, in libjpeg's words; it also warns of harmless oddities.
_DAMAGE = {"premature end": Category.TRUNCATED, "bad huffman": Category.UNREADABLE}


def check_jpeg(data: bytes, config: ImageOptions) -> CheckedImage | None:
    """Check an upright JPEG in gray or color; return None to leave it to Pillow.

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
    # Pillow reads the orientation from metadata.
    if colors not in ("YCbCr", "RGB", "Gray") or not plain:
        return None
    check_size(width, height, config)
    return decode_jpeg(data, width, height, gray=colors == "Gray", config=config)


def check_scans(data: bytes, most: int) -> None:
    """Reject a JPEG with so many scans that a small file could take minutes to decode."""
    content = np.frombuffer(data, np.uint8)
    # bytes.count() takes four times as long.
    scans = np.count_nonzero((content[:-1] == 0xFF) & (content[1:] == SCAN))
    if scans > most:
        raise Rejected(Category.UNSUPPORTED, f"JPEG: {scans} scans, above {most}")


def is_in_order(data: bytes) -> bool:
    """Return whether segments follow one another up to the frame, as the served model requires.

    Some decoders skip bytes in between.
    """
    return _find_frame_and_scan(data)[0] > 0


def _find_frame_and_scan(data: bytes) -> tuple[int, int]:
    """Return the offsets of the last frame and the first scan; 0 for one that is not reached."""
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
        Whether any decoder can read the image as stored: segments in order, no orientation, and an
        8-bit frame, sequential or progressive, as TensorFlow's libjpeg decodes neither arithmetic
        nor lossless ones. And whether the first scan holds the whole image, so decoders stop there.
    """
    frame, scan = _find_frame_and_scan(data)
    code, bits, components = (data[frame + at : frame + at + 1] for at in (1, 4, 9))
    plain = frame > 0 and code[0] in _PLAIN_FRAMES and bits == b"\x08"
    sequential = frame > 0 and code[0] in SEQUENTIAL
    one_scan = scan > 0 and sequential and data[scan + 4 : scan + 5] == components != b""
    # EXIF data are a segment; XMP is also searched after the pixels of a small file.
    end = scan or len(data)
    if EXIF in data[:end] or data.find(XMP, 0, max(end, SEARCHED_BYTES)) >= 0:
        plain = False
    return plain, one_scan


def decode_jpeg(
    data: bytes, width: int, height: int, *, gray: bool, config: ImageOptions
) -> CheckedImage | None:
    """Decode an upright JPEG as `config` asks; return None to leave it to another decoder.

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
    """Decode to at least twice the wanted size; libjpeg shrinks much larger images on the way."""
    pixels: Pixels = simplejpeg.decode_jpeg(
        data, "GRAY" if gray else "RGB", min_height=2 * side, min_width=2 * side, min_factor=2
    )
    return pixels[..., 0] if gray else pixels

"""The fast way for plain JPEG files, most of all images: libjpeg-turbo, without Pillow."""

from __future__ import annotations

import simplejpeg

from components.images.check_result import Category, CheckedImage, Rejected, check_size
from components.images.options import ImageOptions
from components.images.transcode import Pixels, mean_luminance, shrink, to_jpeg

START = b"\xff\xd8"
_END = b"\xff\xd9"
_SCAN = b"\xda"

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
    # Whether it has to be turned is in its EXIF data, which Pillow reads.
    if colours not in ("YCbCr", "RGB", "Gray") or _has_exif(data):
        return None
    check_size(width, height, config)
    return decode_jpeg(data, width, height, gray=colours == "Gray", config=config)


def _has_exif(data: bytes) -> bool:
    """Say whether the segments before the image hold EXIF data; all of the file would take long."""
    end = 2
    while data[end : end + 1] == b"\xff" and data[end + 1 : end + 2] != _SCAN:
        end += 2 + int.from_bytes(data[end + 2 : end + 4], "big")
    if data[end : end + 1] != b"\xff":
        end = len(data)  # No plain sequence of segments.
    return data.find(b"Exif\0\0", 0, end) >= 0


def decode_jpeg(
    data: bytes, width: int, height: int, *, gray: bool, config: ImageOptions
) -> CheckedImage | None:
    """Decode an upright JPEG as `config` asks; None where another decoder has to look.

    Raises:
        Rejected: damaged.
    """
    channels = 1 if gray else 3
    smaller = config.is_shrunk(width, height)
    if config.check == "header" and not smaller and _END in data[-_TAIL:]:
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

"""TIFF: which layouts are decoded, and what has no colors to show.

tifffile reads the tags. Pillow, with libtiff, decodes the layouts in `_BY_PILLOW`; others, which it
reads wrongly or not at all, are refused.

Source: TIFF 6.0; TIFF technical note 1 (SubIFDs).
"""

import io
import logging
from typing import Any

import numpy as np
import tifffile
from PIL import Image, TiffImagePlugin

from components.images.check_result import Category, Rejected

# Pillow's own reader of uncompressed files takes YCbCr for RGB, and planes of 16 bits for 8.
TiffImagePlugin.READ_LIBTIFF = True
# What is wrong with a file is said where it is rejected.
logging.getLogger("tifffile").addHandler(logging.NullHandler())
logging.getLogger("tifffile").propagate = False

_WHITE_IS_ZERO, _GRAY, _RGB, _PALETTE, _CMYK, _YCBCR = 0, 1, 2, 3, 5, 6
_BANDS = {_WHITE_IS_ZERO: 1, _GRAY: 1, _RGB: 3, _PALETTE: 1, _CMYK: 4, _YCBCR: 3}

_NONE, _FAX, _JPEG = 1, (2, 3, 4), 7
# The others are LZW, Deflate by either number, PackBits, LZMA and Zstandard.
_CODECS = frozenset({_NONE, _JPEG, 5, 8, 32946, 32773, 34925, 50000})

# What the samples beyond the colors are.
_UNSPECIFIED, _PREMULTIPLIED, _ALPHA, _UNDECLARED = (0,), (1,), (2,), (-1,)

_UNSIGNED = 1

# Photometric interpretation and meaning of extra samples → bits that Pillow decodes right, in one
# plane or several.
_BY_PILLOW: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = {
    (_WHITE_IS_ZERO, ()): (1, 2, 4, 8),
    (_GRAY, ()): (1, 2, 4, 8, 16),
    (_GRAY, _ALPHA): (8,),
    (_RGB, ()): (8, 16),
    (_RGB, _UNSPECIFIED): (8, 16),
    (_RGB, _PREMULTIPLIED): (8, 16),
    (_RGB, _ALPHA): (8, 16),
    (_RGB, _UNDECLARED): (8, 16),
    (_PALETTE, ()): (1, 2, 4, 8),
    (_CMYK, ()): (8, 16),
    (_YCBCR, ()): (8,),
}
_IN_ONE_PLANE = {(_GRAY, _ALPHA), (_RGB, _UNDECLARED)}

# Pages and SubIFDs that are looked at.
_MOST_PAGES = 64
_REDUCED, _MASK = 1, 4
# Bytes. A picture of 100 million pixels in strips of a row has 1 MB of them.
_MOST_TAG_BYTES = 2**24
_COLORMAP, _SUBIFDS, _INK_SET = 320, 330, 332
_SAMPLE_FORMAT, _RESOLUTION = 339, 282


def open_tiff(data: bytes, *, most_pixels: float) -> Image.Image:
    """Read the tags of a file, which is decoded when it is needed.

    Its attribute `is_animated` says whether there are several pictures: thumbnails, reduced copies
    and masks do not count.

    Raises:
        Rejected: the picture has no colors to show, a layout that is not supported, or comes after
            a thumbnail.
    """
    file = tifffile.TiffFile(_TagReader(data))
    if not len(file.pages):
        raise Rejected(Category.TRUNCATED, "TIFF: the file ends before its tags")
    page = file.pages[0]
    sides = page.imagewidth, page.imagelength, page.tilewidth, page.tilelength
    if not all(isinstance(side, int) for side in sides):
        raise ValueError(f"the size is {sides}")
    below = [] if page.tags.valueof(_SUBIFDS) is None else page.pages[:_MOST_PAGES]
    if not _is_full(page) or any(map(_is_full, below)):
        reason = "TIFF of a thumbnail with its picture elsewhere: store the picture alone"
        raise Rejected(Category.UNSUPPORTED, reason)
    is_doubted = _check_layout(page)
    if page.is_tiled and page.tilewidth * page.tilelength > most_pixels:
        raise Rejected(
            Category.TOO_LARGE, f"TIFF with tiles of {page.tilewidth} x {page.tilelength} pixels"
        )
    image = _PillowImage(_TagReader(data))
    image.is_doubted = is_doubted
    image.cut = _explain_cut(data, page)
    image.is_animated = any(map(_is_full, file.pages[1:_MOST_PAGES]))
    return image


def _is_full(page: Any) -> bool:
    return not page.subfiletype & (_REDUCED | _MASK)


def _check_layout(page: Any) -> bool:
    """Return whether a fourth band, called transparency or nothing, may be something else.

    Raises:
        Rejected: Pillow does not show the colors of the page.
    """
    tags = page.tags

    def number(tag: int, default: int) -> int:
        """Return a number, the same for all bands, or 0."""
        values = np.unique(tags.valueof(tag, default)).tolist()
        return int(values[0]) if len(values) == 1 else 0

    photometric, bands, bits = number(262, -1), number(277, 1), number(258, 1)
    compression, planes, is_reversed = number(259, _NONE), number(284, 1), number(266, 1) == 2
    extra = tuple(map(int, np.atleast_1d(tags.valueof(338, ()))))
    if (photometric, bands, extra) == (_RGB, 4, ()):
        extra = _UNDECLARED  # OpenCV writes transparency so.
    key = photometric, extra
    is_fax = compression in _FAX and bits == bands == 1
    is_supported = (
        number(_SAMPLE_FORMAT, _UNSIGNED) == _UNSIGNED
        and bits in _BY_PILLOW.get(key, ())
        and bands == _BANDS[photometric] + len(extra)
        and page.imagedepth == 1
        and tags.valueof(_INK_SET, 1) == 1
        and not (planes == 2 and key in _IN_ONE_PLANE)
        and not (is_reversed and (bands > 1 or bits > 8))
        # Old writers fill the palette with 8 of its 16 bits.
        and not (photometric == _PALETTE and np.max(tags.valueof(_COLORMAP, (0,))) < 256)
        and (is_fax or compression in _CODECS)
        and (compression != _JPEG or bits == 8)
    )
    if not is_supported:
        raise Rejected(
            Category.UNSUPPORTED,
            f"TIFF of {bands} band{'s' * (bands != 1)} of {bits or 'unlike'} bits, color space "
            f"{_name(tifffile.PHOTOMETRIC, photometric)}, compression "
            f"{_name(tifffile.COMPRESSION, compression)}: store what is to be seen as gray or RGB "
            f"with 8 bits",
        )
    # GDAL and OpenCV state the format of samples, which others leave out if they are plain, and no
    # resolution. A fourth band is transparency to them, whatever it holds.
    by_them = _SAMPLE_FORMAT in tags and _RESOLUTION not in tags
    return extra == _UNDECLARED or (extra == _ALPHA and by_them)


def _name(numbers: Any, number: int) -> str:
    return numbers(number).name if number in [*numbers] else f"number {number}"


def _check_alpha(image: Image.Image) -> None:
    """Reject a picture whose fourth band seems to be something else, such as near infrared."""
    counts = image.getchannel("A").histogram()
    if counts[0] + counts[255] < sum(counts) / 2:
        raise Rejected(
            Category.UNSUPPORTED,
            "TIFF with a fourth band that is called transparency, but is neither clear nor opaque "
            "in most places: store the three to be seen as RGB",
        )


class _PillowImage(TiffImagePlugin.TiffImageFile):
    """A picture that Pillow decodes, and turns upright."""

    is_doubted = False
    cut = ""

    def load(self) -> Any:
        # libtiff reads what a JPEG lacks as gray. Without compression, counts may be too large.
        if self.cut and self._compression != "raw":
            raise Rejected(Category.TRUNCATED, self.cut)
        try:
            return super().load()
        except OSError as error:
            category = Category.TRUNCATED if self.cut else Category.UNREADABLE
            raise Rejected(category, self.cut or f"TIFF: {error}") from error

    def load_end(self) -> None:
        super().load_end()
        if self.is_doubted and self.mode == "RGBA":
            _check_alpha(self)


class _TagReader(io.BytesIO):
    """A file of which readers of tags, which may all lie in one place, get a limited amount."""

    left: float = _MOST_TAG_BYTES

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(size)
        self.left -= len(content)
        if self.left < 0:
            raise Rejected(Category.TOO_LARGE, f"TIFF with more than {_MOST_TAG_BYTES:,} B of tags")
        return content


def _explain_cut(data: bytes, page: Any) -> str:
    """Return that the file ends before its pixels do; empty if not."""
    end = max(map(sum, zip(page.dataoffsets, page.databytecounts, strict=False)), default=0)
    return f"TIFF: the file ends after {len(data):,} of {end:,} bytes" if end > len(data) else ""

"""TIFF: which picture of a file counts, which layouts are decoded, and what has no colors to show.

tifffile reads the tags. Pillow, with libtiff, decodes the layouts in `_BY_PILLOW`; others, which it
reads wrongly or not at all, are refused.

Source: TIFF 6.0; TIFF technical note 1 (SubIFDs).
"""

import io
import itertools
import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

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

# Pages and SubIFDs among which a picture is looked for.
_MOST_PAGES = 64
_REDUCED, _MASK = 1, 4
# Bytes. A picture of 100 million pixels in strips of a row has 1 MB of them.
_MOST_TAG_BYTES = 2**24
_COLORMAP, _SUBIFDS, _INK_SET = 320, 330, 332
_SAMPLE_FORMAT, _RESOLUTION = 339, 282


class _Layout(NamedTuple):
    """How the samples of a picture are stored."""

    photometric: int
    bits: int
    """Of a sample; 0 if they differ."""
    bands: int
    extra: tuple[int, ...]
    kind: int
    """Unsigned, signed, floating-point, or another sample format."""
    planes: int
    compression: int
    fill_order: int

    def is_decoded_right(self, page: Any) -> bool:
        """Return whether Pillow shows the colors of a page with this layout."""
        key = (self.photometric, self.extra)
        if self.kind != _UNSIGNED or self.bits not in _BY_PILLOW.get(key, ()):
            return False
        if self.bands != _BANDS[self.photometric] + len(self.extra):
            return False
        if page.imagedepth > 1 or page.tags.valueof(_INK_SET, 1) != 1:
            return False
        if self.planes == 2 and key in _IN_ONE_PLANE:
            return False
        if self.fill_order == 2 and (self.bands > 1 or self.bits > 8):
            return False
        # Old writers fill the palette with 8 of its 16 bits.
        if self.photometric == _PALETTE and np.max(page.tags.valueof(_COLORMAP, (0,))) < 256:
            return False
        if self.compression in _FAX:
            return self.bits == 1 and self.bands == 1
        return self.compression in _CODECS and (self.compression != _JPEG or self.bits == 8)

    def __str__(self) -> str:
        """Describe it by the names that the specification gives."""
        bits = f"{self.bits} bits" if self.bits else "unlike bits"
        bands = "1 band" if self.bands == 1 else f"{self.bands} bands"
        colors = _name(tifffile.PHOTOMETRIC, self.photometric)
        kind = _name(tifffile.SAMPLEFORMAT, self.kind)
        packed = _name(tifffile.COMPRESSION, self.compression)
        return f"{bands} of {bits} ({kind}), {colors}, compression {packed}"


def _name(numbers: Any, number: int) -> str:
    try:
        return str(numbers(number).name)
    except ValueError:
        return f"number {number}"


def open_tiff(data: bytes, *, most_pixels: float) -> Image.Image:
    """Read the tags of the first full picture of a file, which is decoded when it is needed.

    Its attribute `is_animated` says whether there are several pictures: thumbnails, reduced copies
    and masks do not count.

    Raises:
        Rejected: the picture has no colors to show, or a layout that is not supported.
    """
    file = _TagReader(data)
    page, several = _find_picture(tifffile.TiffFile(file))
    sides = page.imagewidth, page.imagelength, page.tilewidth, page.tilelength
    if not all(isinstance(side, int) for side in sides):
        raise ValueError(f"the size is {sides}")
    layout = _read_layout(page)
    if not layout.is_decoded_right(page):
        raise Rejected(
            Category.UNSUPPORTED,
            f"TIFF of {layout}: store what is to be seen as gray or RGB with 8 bits",
        )
    if page.is_tiled and page.tilewidth * page.tilelength > most_pixels:
        raise Rejected(
            Category.TOO_LARGE, f"TIFF with tiles of {page.tilewidth} x {page.tilelength} pixels"
        )
    # GDAL and OpenCV state the format of samples, which others leave out if they are plain, and no
    # resolution. A fourth band is transparency to them, whatever it holds.
    codes = page.tags.keys()
    is_doubted = layout.extra == _UNDECLARED
    is_doubted |= layout.extra == _ALPHA and _SAMPLE_FORMAT in codes and _RESOLUTION not in codes
    image = _PillowImage(_TagReader(_with_first(data, page)))
    image.is_doubted = is_doubted
    image.cut = _explain_cut(data, page)
    image.is_animated = several
    return image


def _find_picture(file: Any) -> tuple[Any, bool]:
    """Return the page of the first full picture, and whether there are others."""
    if not len(file.pages):
        raise Rejected(Category.TRUNCATED, "TIFF: the file ends before its tags")
    first = file.pages[0]
    below = [] if first.tags.valueof(_SUBIFDS) is None else first.pages[:_MOST_PAGES]
    full = [page for page in (first, *below) if _is_full(page)]
    others = (page for page in itertools.islice(_pages(file), 1, _MOST_PAGES) if _is_full(page))
    # The SubIFDs of a full picture are smaller copies of it.
    chosen = max(full, key=lambda page: page.imagewidth * page.imagelength, default=None)
    chosen = chosen or next(others, first)
    return chosen, next(others, None) is not None


def _pages(file: Any) -> Iterator[Any]:
    for number in itertools.count():
        try:
            yield file.pages[number]
        except IndexError:
            return


def _is_full(page: Any) -> bool:
    return not page.subfiletype & (_REDUCED | _MASK)


def _read_layout(page: Any) -> _Layout:
    tags = page.tags

    def numbers(tag: int, *default: int) -> tuple[int, ...]:
        value = tags.valueof(tag, default)
        return (int(value),) if isinstance(value, int) else tuple(map(int, value))

    [photometric], [bands], [planes] = numbers(262, -1), numbers(277, 1), numbers(284, 1)
    [compression], [fill_order] = numbers(259, _NONE), numbers(266, 1)
    bits, kinds, extra = numbers(258, 1), numbers(_SAMPLE_FORMAT, _UNSIGNED), numbers(338)
    if (photometric, bands, extra) == (_RGB, 4, ()):
        extra = _UNDECLARED  # OpenCV writes transparency so.
    kind = kinds[0] if len({*kinds}) == 1 else 0
    return _Layout(
        photometric,
        bits[0] if len({*bits}) == 1 else 0,
        bands,
        extra,
        kind,
        planes,
        compression,
        fill_order,
    )


def _with_first(data: bytes, page: Any) -> bytes:
    """Return a file whose first page is `page`."""
    tiff = page.parent.tiff
    start, size = (8, 8) if tiff.is_bigtiff else (4, 4)
    order = "little" if tiff.byteorder == "<" else "big"
    link = page.offset.to_bytes(size, order)
    same = data.startswith(link, start)
    return data if same else data[:start] + link + data[start + size :]


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

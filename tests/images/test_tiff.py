"""What a person sees in a TIFF of each layout, and which layouts are refused and why."""

import io
import itertools
import struct
from typing import Any

import cv2
import numpy as np
import pytest
import tifffile
from PIL import Image

from components.images.check import check_image
from components.images.check_result import Category, Note, Rejected
from components.images.formats import open_image, rejecting
from components.images.options import ImageOptions
from components.images.transcode import as_seen, turn
from tests.images.tiff_files import (
    CMYK,
    COMPRESSIONS,
    GRAY,
    PALETTE,
    RGB,
    WHITE_IS_ZERO,
    YCBCR,
    Page,
    page,
    write_tiff,
)
from tests.pictures import encode

CONFIG = ImageOptions()
HEIGHT, WIDTH = 24, 32
Numbers = np.ndarray[Any, Any]

UNSPECIFIED, PREMULTIPLIED, ALPHA = (0,), (1,), (2,)
# Photometric interpretation, extra samples → bits that are decoded, and some that are refused.
LAYOUTS: dict[tuple[int, tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]] = {
    (WHITE_IS_ZERO, ()): ((1, 2, 4, 8), (3, 12, 16)),
    (GRAY, ()): ((1, 2, 4, 8, 16), (3, 12)),
    (GRAY, ALPHA): ((8,), (12, 16)),
    (GRAY, PREMULTIPLIED): ((), (8, 16)),
    (RGB, ()): ((8, 16), (10, 12)),
    (RGB, UNSPECIFIED): ((8, 16), (12,)),
    (RGB, PREMULTIPLIED): ((8, 16), (12,)),
    (RGB, ALPHA): ((8, 16), (12,)),
    (CMYK, ()): ((8, 16), (12,)),
}
ROWS = [
    (photometric, extra, bits, planar, compression, decoded)
    for (photometric, extra), depths in LAYOUTS.items()
    for decoded, some in zip((True, False), depths, strict=True)
    for bits in some
    for planar in ((1, 2) if photometric in (RGB, CMYK) or extra else (1,))
    for compression in COMPRESSIONS
    if compression != "lzma" or photometric == RGB
]


def see(data: bytes) -> Numbers:
    image = open_image(data, CONFIG)
    with rejecting(image):
        return as_seen(image, orientation=1).astype(float)


def samples(bits: int, bands: int) -> Numbers:
    """Gradients over the whole range, in other directions for each band."""
    down, right = np.mgrid[:HEIGHT, :WIDTH]
    values = [(10 * down + 3 * right * (band + 1) + 40 * band) % 256 for band in range(bands)]
    scaled: Numbers = np.round(np.stack(values, -1) / 255 * (2**bits - 1)).astype(int)
    return scaled


def seen_in(values: Numbers, photometric: int, *, bits: int, extra: tuple[int, ...]) -> Any:
    """Return what a person sees in samples, by the specification alone: RGB, 0 to 255."""
    scaled = values / (2**bits - 1) * 255
    colors, last = scaled[..., :3], scaled[..., -1:]
    if photometric in (WHITE_IS_ZERO, GRAY):
        colors = np.repeat(scaled[..., :1], 3, axis=2)
        colors = 255 - colors if photometric == WHITE_IS_ZERO else colors
    if photometric == CMYK:
        return (255 - colors) * (255 - last) / 255
    if extra == PREMULTIPLIED:
        return colors + 255 - last
    return (colors * last + 255 * (255 - last)) / 255 if extra == ALPHA else colors


def test_each_layout_is_seen_as_the_specification_says() -> None:
    """In strips and tiles, both byte orders, predicted or not; or it is refused."""
    forms = itertools.cycle(itertools.product("<>", (0, 16), (1, 2)))
    for photometric, extra, bits, planar, compression, decoded in ROWS:
        order, tile, predictor = next(forms)
        values = samples(bits, {RGB: 3, CMYK: 4}.get(photometric, 1) + len(extra))
        if extra == PREMULTIPLIED:
            values[..., :-1] = values[..., :-1] * values[..., -1:] // (2**bits - 1)
        predicted = bits in (8, 16) and compression not in ("none", "packbits")
        stored = page(
            values,
            photometric,
            bits=bits,
            planar=planar,
            compression=compression,
            tile=tile,
            order=order,
            predictor=predictor if predicted else 1,
            tags={338: list(extra)} if extra else {},
        )
        data = write_tiff(stored, order=order)
        row = (photometric, extra, bits, planar, compression, order, tile, predictor)
        if not decoded or (planar == 2 and (photometric, extra) == (GRAY, ALPHA)):
            with pytest.raises(Rejected, match=r"^TIFF of [^:]+: store what is"):
                see(data)
            continue
        wanted = seen_in(values, photometric, bits=bits, extra=extra)
        assert np.abs(see(data) - wanted).max() <= 2, row


SMOOTH = cv2.resize(
    np.array([[[200, 30, 40], [20, 180, 60]], [[40, 50, 220], [230, 220, 30]]], np.uint8),
    (WIDTH, HEIGHT),
    interpolation=cv2.INTER_CUBIC,
)
DIM = SMOOTH[..., 1].astype(np.uint16)
YCC = cv2.cvtColor(SMOOTH, cv2.COLOR_RGB2YCrCb)[..., [0, 2, 1]].astype(np.uint16)
BLACK_OR_WHITE = DIM > 128


def gray(values: Numbers) -> Numbers:
    return np.repeat(values.astype(float)[..., None], 3, axis=2)


def written(values: Numbers, **options: Any) -> bytes:
    buffer = io.BytesIO()
    if values.max() < 256 and values.dtype == np.uint16:
        values = values.astype(np.uint8)
    tifffile.imwrite(buffer, values, **options)
    return buffer.getvalue()


def fax(compression: str, *, tag: int) -> bytes:
    tiffinfo = {262: tag}
    return encode(
        Image.fromarray(BLACK_OR_WHITE), "TIFF", compression=compression, tiffinfo=tiffinfo
    )


def reversed_bits(stored: Page) -> bytes:
    tags, parts = stored
    turned = [bytes(int(f"{byte:08b}"[::-1], 2) for byte in part) for part in parts]
    return write_tiff((tags | {266: 2}, turned))


def subsampled(across: int, down: int) -> bytes:
    """Units of `across` × `down` luma samples with their chroma, without compression."""
    units = bytearray()
    for top, left in itertools.product(range(0, HEIGHT, down), range(0, WIDTH, across)):
        unit = YCC[top : top + down, left : left + across]
        units += bytes([*unit[..., 0].ravel(), *unit[..., 1:].mean((0, 1)).astype(int)])
    tags = {256: WIDTH, 257: HEIGHT, 258: [8] * 3, 259: 1, 262: 6, 277: 3, 278: HEIGHT, 284: 1}
    return write_tiff((tags | {530: [across, down]}, [bytes(units)]), page(samples(8, 1), GRAY))


def indexed(bits: int, *, unit: int = 257, fill_order: int = 1) -> tuple[bytes, Numbers]:
    random = np.random.default_rng(bits)
    places = random.integers(0, 2**bits, (HEIGHT, WIDTH, 1))
    colors = random.integers(0, 256, (3, 2**bits))
    stored = page(places, PALETTE, bits=bits, tags={320: (colors * unit).ravel().tolist()})
    data = reversed_bits(stored) if fill_order == 2 else write_tiff(stored)
    return data, colors.T[places[..., 0]]


def by_opencv(band: Numbers) -> bytes:
    """Write a fourth band without a word on what it is."""
    return cv2.imencode(".tiff", np.dstack([SMOOTH[..., ::-1], band.astype(np.uint8)]))[1].tobytes()


def above(upper: Page, below: Page) -> Page:
    """Put a picture into the SubIFD of another one."""
    return upper[0] | {330: [below]}, upper[1]


THUMBNAIL = page(cv2.resize(SMOOTH, (8, 6)).astype(int), RGB, tags={254: 1})
PICTURE = page(SMOOTH.astype(int), RGB)
NEGATIVE = page(255 - DIM[..., None].astype(int), WHITE_IS_ZERO)
SMALL_COPY = page(cv2.resize(SMOOTH, (8, 6)).astype(int), RGB)
PLANES = {"photometric": "rgb", "planarconfig": "separate"}
OPAQUE = np.uint8(255) * BLACK_OR_WHITE
# Name → file and what a person sees.
SEEN: dict[str, tuple[bytes, Numbers]] = {
    "BigTIFF": (written(DIM * 257, bigtiff=True, photometric=1), gray(DIM)),
    **{
        f"palette of {bits} bits": indexed(bits, fill_order=order)
        for bits, order in [(1, 1), (4, 2), (8, 1)]
    },
    **{
        f"{kind}, {'black' if number else 'white'} is zero": (
            fax(kind, tag=number),
            255 * gray(BLACK_OR_WHITE),
        )
        for kind in ("tiff_ccitt", "group3", "group4")
        for number in (0, 1)
    },
    **{
        f"{bits} bits, reversed": (
            reversed_bits(page(samples(bits, 1), WHITE_IS_ZERO, bits=bits)),
            seen_in(samples(bits, 1), WHITE_IS_ZERO, bits=bits, extra=()),
        )
        for bits in (1, 4, 8)
    },
    **{
        f"YCbCr {across} × {down}": (subsampled(across, down), SMOOTH)
        for across, down in [(1, 1), (2, 1), (1, 2), (2, 2)]
    },
    "YCbCr in planes": (write_tiff(page(YCC, YCBCR, planar=2, tags={530: [1, 1]})), SMOOTH),
    "JPEG": (written(DIM, compression="jpeg", photometric="miniswhite"), 255 - gray(DIM)),
    "JPEG of RGB": (written(SMOOTH, compression="jpeg", photometric="rgb"), SMOOTH),
    "JPEG of YCbCr": (written(YCC, photometric="ycbcr", compression="jpeg"), SMOOTH),
    "JPEG in planes": (written(np.moveaxis(SMOOTH, 2, 0), compression="jpeg", **PLANES), SMOOTH),
    "transparency": (by_opencv(OPAQUE), np.where(BLACK_OR_WHITE[..., None], SMOOTH, 255)),
    "a picture above a copy": (write_tiff(above(PICTURE, THUMBNAIL), THUMBNAIL), SMOOTH),
}


@pytest.mark.parametrize("name", SEEN)
def test_a_person_sees(name: str) -> None:
    data, wanted = SEEN[name]
    # JPEG rounds coefficients, and chroma of several pixels is their mean.
    tolerance = 26 if "JPEG" in name else 18 if "YCbCr" in name else 1
    assert np.abs(see(data) - wanted).max() <= tolerance


@pytest.mark.parametrize("orientation", range(1, 9))
def test_it_is_upright(orientation: int) -> None:
    tags = [(274, 3, 1, orientation, True)]
    data = written(DIM * 257, photometric="minisblack", extratags=tags)
    turned = turn(gray(DIM).astype(np.uint8), orientation)
    assert open_image(data, CONFIG).size == turned.shape[1::-1]
    np.testing.assert_array_equal(see(data), turned)


def test_thumbnails_and_reduced_copies_are_no_pages() -> None:
    assert check_image(write_tiff(PICTURE, THUMBNAIL), CONFIG).notes == ()
    for several in ((PICTURE, SMALL_COPY), (NEGATIVE, PICTURE)):
        assert check_image(write_tiff(*several), CONFIG).notes == (Note.PAGES,)


def from_gdal(bands: int, photometric: int, extra: list[int]) -> bytes:
    """Write bands as GDAL does: the sample format is stated, a resolution is not."""
    tags = {339: [1] * bands, **({338: extra} if extra else {})}
    return write_tiff(page(samples(8, bands), photometric, tags=tags))


without_colors = page(samples(8, 1), GRAY)
del without_colors[0][262]
REFUSED = {
    "three bands of GDAL": from_gdal(3, GRAY, [0, 0]),
    "two bands": from_gdal(2, GRAY, [0]),
    "five bands": from_gdal(5, RGB, [2, 0]),
    "a spot color": write_tiff(page(samples(8, 5), CMYK, tags={338: [0]})),
    "floats": written(DIM.astype(np.float32)),
    "half floats": written(DIM.astype(np.float16)),
    "signed 16 bits": written(DIM.astype(np.int16) - 99, photometric=1),
    "the palette of an old writer": indexed(8, unit=1)[0],
    "16 bits, reversed": reversed_bits(page(samples(16, 1), GRAY, bits=16)),
    "32 bits": written(DIM.astype(np.uint32)),
    "unlike bits": write_tiff((PICTURE[0] | {258: [5, 6, 5]}, PICTURE[1])),
    "CIELab": write_tiff(page(samples(8, 3), 8)),
    "a camera's raw data": write_tiff(above(THUMBNAIL, page(samples(16, 1), 32803, bits=16))),
    "other inks": write_tiff(page(samples(8, 4), CMYK, tags={332: 2})),
    "YCbCr of 16 bits": write_tiff(page(samples(16, 3), YCBCR, bits=16)),
    "a signed palette": write_tiff(page(samples(8, 1), PALETTE, tags={339: 2, 320: [0] * 768})),
    "no color space": write_tiff(without_colors),
    "no palette": write_tiff(page(samples(8, 1), PALETTE)),
    "a volume": written(
        np.stack([DIM] * 3), volumetric=True, photometric="minisblack", tile=(1, 16, 16)
    ),
    "JPEG 2000 inside": written(SMOOTH, compression="jpeg2000", photometric="rgb"),
    "a thumbnail above its picture": write_tiff(above(THUMBNAIL, PICTURE)),
    "a thumbnail that is not called so": write_tiff(above(SMALL_COPY, PICTURE)),
    "a thumbnail before its picture": write_tiff(THUMBNAIL, PICTURE),
    "near infrared as transparency": from_gdal(4, RGB, [2]),
    "near infrared by OpenCV": by_opencv(DIM),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_what_it_is(name: str) -> None:
    reason = "neither clear nor opaque" if "infrared" in name else "^TIFF of [^:]+: store "
    reason = "5 bands of 8 bits, color space RGB, comp" if name == "five bands" else reason
    with pytest.raises(Rejected, match=reason) as caught:
        see(REFUSED[name])
    assert caught.value.category == Category.UNSUPPORTED


@pytest.mark.parametrize(
    ("data", "category"),
    [
        (write_tiff((PICTURE[0] | {322: 60_000, 323: 60_000}, PICTURE[1])), Category.TOO_LARGE),
        (write_tiff((NEGATIVE[0] | {256: 60_000, 257: 60_000}, [])), Category.TOO_LARGE),
        (write_tiff((NEGATIVE[0], NEGATIVE[1][:2])), Category.UNREADABLE),
        (write_tiff(NEGATIVE)[:-300], Category.TRUNCATED),
        (written(DIM, compression="jpeg")[:-200], Category.TRUNCATED),
        (written(SMOOTH, photometric="rgb")[:-200], Category.TRUNCATED),
    ],
    ids=["tiles", "sides", "parts", "cut", "JPEG", "plain"],
)
def test_what_is_cut_or_larger_than_it_says_is_rejected(data: bytes, category: Category) -> None:
    with pytest.raises(Rejected) as caught:
        see(data)
    assert caught.value.category == category


@pytest.mark.parametrize("code", [273, 40_000])
def test_tags_that_share_their_values_exhaust_no_memory(code: int) -> None:
    """tifffile keeps the values of a tag that is repeated, Pillow those of every tag."""
    values, count = bytes(4_000_000), 500
    data = write_tiff(PICTURE)
    [directory] = struct.unpack_from("<I", data, 4)
    [known] = struct.unpack_from("<H", data, directory)
    entries = data[directory + 2 : directory + 2 + 12 * known]
    for number in range(count):
        tag = code if code == 273 else code + number
        entries += struct.pack("<HHII", tag, 4, len(values) // 4, len(data))
    place = len(data) + len(values)
    tags = struct.pack("<H", known + count) + entries + bytes(4)
    with pytest.raises(Rejected, match="more than 16,777,216 B of tags"):
        see(data[:4] + struct.pack("<I", place) + data[8:] + values + tags)

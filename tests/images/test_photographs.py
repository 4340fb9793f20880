"""Photographs as phones and cameras write them: formats, color profiles, frames and bit depths."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from components.images.canonical import decode_file
from components.images.check import check_image, convert, count_pixels
from components.images.check_result import Category, Note, Rejected
from components.images.options import ImageOptions
from components.images.thumbnails import make_thumbnail
from tests.pictures import ADOBE_RGB, encode, heic, picture, profile, turned

Array = np.ndarray[Any, Any]

CONFIG = ImageOptions(max_image_mpixels=1)
LOSSLESS: dict[str, dict[str, Any]] = {
    "HEIF": {"quality": -1, "chroma": 444},
    "AVIF": {"quality": 100, "subsampling": "4:4:4"},
    "PNG": {},
    "TIFF": {},
    "WEBP": {"lossless": True},
    "JPEG": {"quality": 100, "subsampling": 0},
}


def write(image: Image.Image, kind: str, **options: Any) -> bytes:
    options = {**LOSSLESS[kind], **options}
    return heic(image, **options) if kind == "HEIF" else encode(image, kind, **options)


def decode_pixels(encoded: bytes) -> Array:
    """Return the pixels that TensorFlow sees."""
    pixels: Array = decode_file(encoded).numpy()
    return pixels


def stored(data: bytes, config: ImageOptions = CONFIG) -> Array:
    """Return the pixels that Transform gets; the server's are the same."""
    checked = check_image(data, config)
    pixels = decode_pixels(checked.encoded).astype(int)
    assert pixels.shape[:2] == (checked.height, checked.width)
    served = decode_pixels(convert(data, config)).astype(int)
    assert np.abs(pixels - served).max() <= (4 if checked.format == "jpeg" else 0)
    return pixels


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["HEIF", "AVIF"])
def test_photographs_of_phones_are_upright(kind: str, orientation: int) -> None:
    image = picture(1)
    data = write(image, kind, exif=turned(orientation).tobytes())
    image.getexif()[0x0112] = orientation
    upright = np.asarray(ImageOps.exif_transpose(image)).astype(int)
    assert np.abs(stored(data) - upright).max() <= 4
    assert count_pixels(data, CONFIG) == upright.shape[0] * upright.shape[1]
    thumbnail = make_thumbnail(data)
    assert thumbnail is not None
    assert (thumbnail.height, thumbnail.width) == upright.shape[:2]


@pytest.mark.parametrize("kind", LOSSLESS)
def test_color_profiles_are_ignored(kind: str) -> None:
    data = write(picture(1), kind, icc_profile=profile(ADOBE_RGB))
    assert np.abs(stored(data) - np.asarray(picture(1))).mean() < 2


FRAMES = {"save_all": True, "append_images": [picture(2)]}


@pytest.mark.parametrize(
    ("kind", "note"),
    [*((kind, Note.FRAMES) for kind in ("GIF", "WEBP", "PNG", "AVIF")), ("TIFF", Note.PAGES)],
)
def test_of_several_frames_the_first_is_used_and_counted(kind: str, note: Note) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encode(picture(1), kind, **FRAMES, **options)
    assert np.abs(stored(data) - np.asarray(picture(1))).mean() < 8  # A GIF has 256 colors.
    assert check_image(data, CONFIG).notes == (note,)
    assert not check_image(encode(picture(1), kind, **options), CONFIG).notes


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@pytest.mark.parametrize(("bits", "notes"), [(12, (Note.DARK,)), (16, ())])
def test_twelve_bits_stored_in_sixteen_are_noted(
    kind: str, bits: int, notes: tuple[Note, ...]
) -> None:
    gray = np.linspace(0, 2**bits - 1, 64 * 64).reshape(64, 64).astype(np.uint16)
    assert check_image(encode(Image.fromarray(gray), kind), CONFIG).notes == notes


PHOTO = heic(picture(1, height=80, width=96))
SIZE = PHOTO.index(b"ispe") + 8


@pytest.mark.parametrize(
    ("data", "category", "reason"),
    [
        (PHOTO[:-20], Category.TRUNCATED, "the file ends after"),
        (PHOTO[:200], Category.TRUNCATED, "the file ends after"),
        (write(picture(1), "AVIF")[:-20], Category.TRUNCATED, "the file ends after"),
        (
            PHOTO[:SIZE] + struct.pack(">II", 60_000, 60_000) + PHOTO[SIZE + 8 :],
            Category.TOO_LARGE,
            "60000 x 60000 pixels",
        ),
        (PHOTO[:SIZE] + bytes(8) + PHOTO[SIZE + 8 :], None, ""),
    ],
    ids=["cut", "cut header", "cut AVIF", "huge", "no size"],
)
def test_what_is_no_photograph_is_rejected(data: bytes, category: Category, reason: str) -> None:
    for check in (check_image, convert):
        with pytest.raises(Rejected, match=reason) as caught:
            check(data, CONFIG)
        assert category in (None, caught.value.category)
    assert make_thumbnail(data) is None


def test_a_png_whose_profile_inflates_to_megabytes_is_kept() -> None:
    content = b"x\0\0" + zlib.compress(bytes(3 * 2**20))
    chunk = struct.pack(">I", len(content)) + b"iCCP" + content
    chunk += struct.pack(">I", zlib.crc32(chunk[4:]))
    data = encode(picture(1), "PNG")
    data = data[:33] + chunk + data[33:]
    assert check_image(data, CONFIG).encoded == data
    assert Image.open(io.BytesIO(encode(picture(1), "PNG"))).size == (32, 24)

"""Photographs as phones and cameras write them: formats, color profiles, frames and bit depths."""

import dataclasses
import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms, ImageOps

from components.images.canonical import decode_file
from components.images.check import check_image, convert, count_pixels
from components.images.check_result import Category, Note, Rejected
from components.images.options import ImageOptions
from components.images.thumbnails import make_thumbnail
from components.images.transcode import read_jpeg_profile
from tests.pictures import (
    ADOBE_RGB,
    DISPLAY_P3,
    SRGB,
    encode,
    heic,
    picture,
    profile,
    turned,
)

Array = np.ndarray[Any, Any]

CONFIG = ImageOptions(max_image_mpixels=1, color="srgb")
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


def in_srgb(pixels: Array, primaries: Array) -> Array:
    """Convert by the formulas of IEC 61966-2-1."""
    linear = np.clip((pixels / 255) ** 2.2 @ primaries.T @ np.linalg.inv(SRGB).T, 0, 1)
    curved = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return np.asarray(np.round(255 * curved))


@pytest.mark.parametrize("kind", LOSSLESS)
@pytest.mark.parametrize("primaries", [DISPLAY_P3, ADOBE_RGB], ids=["Display P3", "Adobe RGB"])
def test_colors_are_those_that_a_person_sees(kind: str, primaries: Array) -> None:
    data = write(picture(1), kind, icc_profile=profile(primaries))
    wanted = in_srgb(np.asarray(picture(1)), primaries)
    assert np.abs(wanted - np.asarray(picture(1))).max() > 20
    assert np.abs(stored(data) - wanted).mean() < 2
    assert check_image(data, CONFIG).notes == (Note.COLORS,)
    as_stored = dataclasses.replace(CONFIG, color="stored")
    assert np.abs(stored(data, as_stored) - np.asarray(picture(1))).mean() < 2
    assert not check_image(data, as_stored).notes


def test_shrunk_colors_and_transparency_are_converted() -> None:
    wanted = in_srgb(np.array([[[200, 90, 40]]]), DISPLAY_P3)
    image = Image.new("RGB", (90, 80), (200, 90, 40))
    small = dataclasses.replace(CONFIG, shrink=16)
    for kind in ("JPEG", "PNG"):
        data = write(image, kind, icc_profile=profile(DISPLAY_P3))
        checked = check_image(data, small)
        assert checked.height == 16
        seen = decode_pixels(checked.encoded).astype(int)
        assert np.abs(seen - wanted).max() <= 4
    image.putalpha(Image.new("L", image.size, 0))
    image.paste((200, 90, 40, 255), (0, 40, 90, 80))
    seen = stored(write(image, "PNG", icc_profile=profile(DISPLAY_P3)))
    assert (seen[:30] == 255).all()
    assert np.abs(seen[50:] - wanted).max() <= 2


LITTLE_CMS = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
IGNORED = {
    "sRGB": profile(SRGB),
    "sRGB of Little CMS": LITTLE_CMS.tobytes(),
    "broken": profile(DISPLAY_P3)[:200],
    "of another space": profile(DISPLAY_P3).replace(b"RGB ", b"CMYK"),
    "huge": profile(DISPLAY_P3) + bytes(5 * 2**20),
}


@pytest.mark.parametrize("check", ["pixels", "header"])
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("name", IGNORED)
def test_profiles_that_change_nothing_keep_the_file(name: str, kind: str, check: Any) -> None:
    data = write(picture(1), kind, icc_profile=IGNORED[name])
    config = dataclasses.replace(CONFIG, check=check)
    checked = check_image(data, config)
    assert checked.encoded == data
    assert not checked.notes
    assert convert(data, config) is data


def test_the_profile_of_a_jpeg_may_have_several_parts() -> None:
    long = profile(DISPLAY_P3).ljust(150_000, b"\0")
    data = encode(picture(1), "JPEG", icc_profile=long)
    assert read_jpeg_profile(data) == long
    assert read_jpeg_profile(data.replace(b"ICC_PROFILE\0\2", b"ICC_PROFILE?\2")) == b""


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

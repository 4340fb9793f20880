"""Formats beside JPEG and TIFF, of any depth: seen as by a person, or refused by their names."""

import struct
import zlib
from typing import Any

import cv2
import imagecodecs
import numpy as np
import pytest

from components.images.check import check_image, convert
from components.images.check_result import Category, Rejected
from components.images.formats import open_image, rejecting
from components.images.options import ImageOptions
from components.images.thumbnails import make_thumbnail
from components.images.transcode import as_seen
from tests.images.tiff_files import pack
from tests.pictures import encode, picture, write_png

CONFIG = ImageOptions()
RGB = np.asarray(picture(1)).astype(int)
GRAY = RGB[..., 1]
ALPHA = np.mgrid[:24, :32][1] * 8
ON_WHITE = (RGB * ALPHA[..., None] + 255 * (255 - ALPHA[..., None])) / 255
DEEP_GRAY, DEEP_RGB = GRAY * 257, RGB * 257
DEEP_RGBA = np.dstack([RGB[..., ::-1], ALPHA]).astype(np.uint16) * 257
# Beside the transparent color, a pixel that differs from it in the lowest bit alone.
DEEP_GRAY[3, 5] = DEEP_GRAY[3, 4] ^ 1
DEEP_RGB[3, 5] = DEEP_RGB[3, 4] ^ (1, 0, 0)


def see(data: bytes) -> Any:
    image = open_image(data, CONFIG)
    with rejecting(image):
        return as_seen(image, orientation=1).astype(int)


def gray(values: Any) -> Any:
    return np.repeat(np.asarray(values)[..., None], 3, axis=2)


def png(values: Any, *, bits: int, color: int, key: tuple[int, ...]) -> bytes:
    """Write a PNG of any depth, one color of which is transparent."""
    rows = b"".join(b"\0" + pack(row[np.newaxis], bits, ">") for row in values)
    transparent = struct.pack(f">{len(key)}H", *key)
    return write_png(32, 24, zlib.compress(rows), bits=bits, color=color, tRNS=transparent)


def keyed(values: Any, *, bits: int) -> tuple[bytes, Any]:
    key = values[3, 4]
    transparent = (values == key).reshape(24, 32, -1).all(-1)
    seen = values * 255 / (2**bits - 1)
    seen = gray(seen) if values.ndim == 2 else seen
    numbers = tuple(map(int, np.atleast_1d(key)))
    data = png(values, bits=bits, color=0 if values.ndim == 2 else 2, key=numbers)
    return data, np.where(transparent[..., None], 255, seen)


def netpbm(header: str, values: Any, *, most: int) -> tuple[bytes, Any]:
    """Write values of 0 to `most`, in text if the header says so."""
    start = f"{header}\n32 24\n{most}\n".encode()
    if header in ("P2", "P3"):
        content = " ".join(map(str, values.ravel())).encode()
    else:
        content = values.astype(">u2" if most > 255 else "u1").tobytes()
    seen = values * 255 / most
    return start + content, gray(seen) if values.ndim == 2 else seen


BITS = (GRAY > 128).astype(int)
SEEN: dict[str, tuple[bytes, Any]] = {
    **{
        f"PNG of {bits} bits with a transparent gray": keyed(GRAY >> 8 - bits, bits=bits)
        for bits in (1, 2, 4, 8)
    },
    "PNG of 16 bits with a transparent gray": keyed(DEEP_GRAY, bits=16),
    "PNG of 8 bits with a transparent color": keyed(RGB, bits=8),
    "PNG of 16 bits with transparency": (cv2.imencode(".png", DEEP_RGBA)[1].tobytes(), ON_WHITE),
    "PGM of 16 bits": netpbm("P5", DEEP_GRAY, most=65_535),
    "PGM of 12 bits": netpbm("P5", GRAY * 16, most=4_095),
    "PGM of 4 bits": netpbm("P5", GRAY >> 4, most=15),
    "PGM of 16 bits in text": netpbm("P2", DEEP_GRAY, most=65_535),
    "PPM of 16 bits": netpbm("P6", DEEP_RGB, most=65_535),
    "PPM of 10 bits": netpbm("P6", RGB * 4, most=1_023),
    "PPM in text": netpbm("P3", RGB, most=255),
    "PBM": (b"P4\n32 24\n" + np.packbits(BITS, axis=1).tobytes(), 255 * gray(1 - BITS)),
    "AVIF of 12 bits": (
        bytes(imagecodecs.avif_encode((RGB * 16).astype(np.uint16), bitspersample=12, level=100)),
        RGB,
    ),
}


@pytest.mark.parametrize("name", SEEN)
def test_a_person_sees(name: str) -> None:
    data, wanted = SEEN[name]
    difference = np.abs(see(data) - wanted)
    assert (difference.max() if name.startswith("P") else difference.mean()) <= 2


REFUSED = {
    "PNG of 16 bits with a transparent color": (
        keyed(DEEP_RGB, bits=16)[0],
        "16 bits with a transparent color: store its transparency",
    ),
    **{
        name: (data, f"^{name} is not supported: store images as PNG or JPEG")
        for name, data in {
            "PDF": encode(picture(1), "PDF"),
            "PFM": encode(picture(1).convert("F"), "PPM"),
            "DICOM": bytes(128) + b"DICM" + bytes(50),
            "JPEG 2000": encode(picture(1), "JPEG2000"),
            "PSD": b"8BPS\0\1" + bytes(60),
            "JPEG XL": b"\0\0\0\x0cJXL \r\n\x87\n" + bytes(50),
            "SVG": b'<?xml version="1.0"?>\n<!-- drawn -->\n<svg xmlns="http://www.w3.org/2000/svg">',
            "video": b"\0\0\0\x18ftypisom" + bytes(12),
            "a camera's raw format": b"II*\0\x10\0\0\0CR\2\0" + bytes(60),
        }.items()
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_ingest_server_and_report_refuse_the_same_by_name(name: str) -> None:
    data, reason = REFUSED[name]
    for check in (check_image, convert):
        with pytest.raises(Rejected, match=reason) as caught:
            check(data, CONFIG)
        assert caught.value.category == Category.UNSUPPORTED
    assert make_thumbnail(data) is None


UNKNOWN = {
    **{kind: encode(picture(1), kind) for kind in ("ICO", "TGA", "EPS", "SGI", "IM")},
    "JPEG-LS": bytes(imagecodecs.jpegls_encode(GRAY.astype(np.uint8))),
    "JPEG of 12 bits": bytes(
        imagecodecs.jpeg8_encode((GRAY * 16).astype(np.uint16), bitspersample=12)
    ),
    "JPEG XR": b"II\xbc\1" + bytes(40),
    "NumPy": b"\x93NUMPY\1\0" + bytes(50),
}


def test_other_formats_are_unknown() -> None:
    for name, data in UNKNOWN.items():
        with pytest.raises(Rejected) as caught:
            pytest.fail(f"{name}: {see(data)}")
        assert caught.value.category == Category.NOT_AN_IMAGE

"""Image files made on the spot, so that the repository holds no binaries."""

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pillow_heif
from PIL import Image

COLOURS = {"blue": (40, 60, 220), "green": (50, 200, 60), "red": (210, 40, 50)}


def picture(seed: int, *, colour: str = "red", height: int = 24, width: int = 32) -> Image.Image:
    """A smooth picture of mostly one colour that differs from seed to seed."""
    random = np.random.default_rng(seed)
    coarse = random.normal(0, 25, (3, 4, 3)) + np.array(COLOURS[colour])
    pixels = np.clip(coarse, 0, 255).astype(np.uint8)
    return Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC)


def scene(seed: int, size: tuple[int, int] = (96, 72)) -> Image.Image:
    """A gray picture with structure of all sizes, as photographs have."""
    random = np.random.default_rng(seed)
    layers = [
        np.asarray(Image.fromarray(random.normal(0, 40, (n, n)).astype(np.float32)).resize(size))
        for n in (3, 6, 12, 24, 48)
    ]
    return Image.fromarray(np.clip(sum(layers) + 128, 0, 255).astype(np.uint8)).convert("RGB")


def encode(image: Image.Image, image_format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, image_format, **options)
    return buffer.getvalue()


def turned(orientation: int) -> Image.Exif:
    """EXIF data that state an orientation."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def png_bomb(width: int, height: int) -> bytes:
    """A small PNG whose header states any size."""
    return write_png(width, height, zlib.compress(b"\0" * 1000))


def write_png(
    width: int, height: int, data: bytes, *, bits: int = 8, color: int = 2, **chunks: bytes
) -> bytes:
    """A PNG of compressed `data`, with other chunks before it."""
    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0)
    written = b"\x89PNG\r\n\x1a\n"
    for name, content in {"IHDR": header, **chunks, "IDAT": data, "IEND": b""}.items():
        chunk = name.encode() + content
        written += struct.pack(">I", len(content)) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return written


def write_folder(
    folder: Path,
    *,
    each: int,
    labels: tuple[str, ...] = ("blue", "green", "red"),
    split: str = "",
    first_seed: int = 0,
) -> Path:
    """Write `each` pictures per label as `folder/[split/]label/number.jpg` or `.png`."""
    for index, label in enumerate(labels):
        target = folder / split / label
        target.mkdir(parents=True, exist_ok=True)
        for number in range(each):
            seed = first_seed + 10_000 * index + number
            kind = "png" if number % 4 == 0 else "jpeg"
            data = encode(picture(seed, colour=label), kind)
            (target / f"{number:03d}.{kind}").write_bytes(data)
    return folder


def heic(image: Image.Image, **options: Any) -> bytes:
    """Encode as HEIC; the reader stays the product's own."""
    Image.register_save("HEIF", pillow_heif.as_plugin._save_heif)
    return encode(image, "HEIF", **options)


ADOBE_RGB = np.array([[0.6097, 0.2053, 0.1492], [0.3111, 0.6257, 0.0632], [0.0195, 0.0609, 0.7446]])
"""Columns: XYZ (D50) of red, green and blue."""


def profile(primaries: np.ndarray[Any, Any], *, gamma: float = 2.2) -> bytes:
    """An ICC profile of three primaries and a gamma (ICC.1:2022, 7 and 8.3)."""

    def numbers(*values: float) -> bytes:
        return struct.pack(f">{len(values)}i", *(round(value * 65536) for value in values))

    curve = b"curv\0\0\0\0" + struct.pack(">IH", 1, round(gamma * 256)) + b"\0\0"
    columns = zip((b"rXYZ", b"gXYZ", b"bXYZ"), primaries.T, strict=True)
    tags = {
        b"desc": b"desc\0\0\0\0\0\0\0\2x\0" + b"\0" * 82,
        b"wtpt": b"XYZ \0\0\0\0" + numbers(0.9642, 1, 0.8249),
        **{name: b"XYZ \0\0\0\0" + numbers(*column) for name, column in columns},
        **dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), curve),
    }
    place, table, content = 132 + 12 * len(tags), struct.pack(">I", len(tags)), b""
    for name, data in tags.items():
        table += name + struct.pack(">II", place + len(content), len(data))
        content += data + b"\0" * (-len(data) % 4)
    head = struct.pack(">II", place + len(content), 0) + b"\2\x20\0\0mntrRGB XYZ "
    head += b"\0" * 12 + b"acsp" + b"\0" * 28 + numbers(0.9642, 1, 0.8249)
    return head.ljust(128, b"\0") + table + content

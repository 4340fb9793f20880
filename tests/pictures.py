"""Image files made on the spot, so that the repository holds no binaries."""

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

COLOURS = {"blue": (40, 60, 220), "green": (50, 200, 60), "red": (210, 40, 50)}


def picture(seed: int, *, colour: str = "red", height: int = 24, width: int = 32) -> Image.Image:
    """A smooth picture of mostly one colour that differs from seed to seed."""
    random = np.random.default_rng(seed)
    coarse = random.normal(0, 25, (3, 4, 3)) + np.array(COLOURS[colour])
    pixels = np.clip(coarse, 0, 255).astype(np.uint8)
    return Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC)


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
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0),
        b"IDAT": zlib.compress(b"\0" * 1000),
        b"IEND": b"",
    }
    written = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks.items()
    )
    return b"\x89PNG\r\n\x1a\n" + written


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

"""A folder of images as people have them: every format, turned, transparent, broken, hidden."""

import os
from pathlib import Path

from PIL import Image

from tests.pictures import encode, picture


def write_odd_folder(folder: Path) -> Path:
    """Write two classes, as `a` and `b`, of images that ingest keeps, transcodes and rejects."""
    turned, image = Image.Exif(), picture(1, height=40, width=60)
    turned[0x112] = 6
    jpeg = encode(image, "JPEG")
    files = {
        "a/bitmap.bmp": encode(image, "BMP"),
        "a/cmyk.jpg": encode(image.convert("CMYK"), "JPEG"),
        "a/gray.png": encode(image.convert("L"), "PNG"),
        "a/plain.jpg": jpeg,
        "a/tagged.tiff": encode(image, "TIFF"),
        "a/turned.jpg": encode(picture(2), "JPEG", exif=turned),
        "a/web.webp": encode(picture(3), "WEBP", lossless=True),
        "b/clear.png": encode(picture(4).convert("RGBA"), "PNG"),
        "b/cut.jpg": jpeg[: len(jpeg) // 2],
        "b/deep/er.gif": encode(picture(5), "GIF"),
        "b/empty.jpg": b"",
        "b/palette.png": encode(picture(6).convert("P"), "PNG"),
        "b/words.jpg": b"no image",
        "b/.DS_Store": b"",
    }
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (folder / "b" / "broken_link.png").symlink_to("nowhere")
    Path(os.fsdecode(os.fsencode(folder) + b"/a/\xff\n.jpg")).write_bytes(jpeg)
    return folder

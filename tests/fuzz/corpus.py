"""Seeds for fuzzing: intact images of every kind, generated on the fly."""

from typing import Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from tests.images import test_formats, test_tiff
from tests.pictures import encode, heic, picture, turned

_IMAGE = picture(1, height=29, width=37)
_XMP = '<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'

_COMMON: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("JPEG", "RGB", {}),
    ("JPEG", "RGB", {"progressive": True, "subsampling": 2}),
    ("JPEG", "RGB", {"restart_marker_blocks": 1}),
    ("JPEG", "L", {}),
    ("JPEG", "CMYK", {}),
    ("PNG", "RGB", {}),
    ("PNG", "P", {}),
    ("PNG", "RGBA", {}),
    ("GIF", "P", {}),
    ("BMP", "RGB", {}),
    ("BMP", "P", {}),
    ("WEBP", "RGB", {}),
    ("WEBP", "RGBA", {"lossless": True}),
)

_RARE: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("JPEG", "RGB", {"xmp": _XMP.encode()}),
    ("PNG", "1", {}),
    ("PNG", "I;16", {}),
    ("PNG", "LA", {}),
    ("PNG", "L", {"transparency": 3}),
    ("TIFF", "RGB", {"compression": "tiff_lzw"}),
    ("TIFF", "L", {"compression": "jpeg"}),
    ("MPO", "RGB", {}),
)


def common_images() -> list[bytes]:
    """Return images of each kind that ingest keeps or transcodes."""
    files = [encode(_IMAGE.convert(mode), kind, **options) for kind, mode, options in _COMMON]
    return [*files, encode(_IMAGE, "JPEG", exif=turned(6))]


def rare_images() -> list[bytes]:
    """Return rare formats and depths, animations, and PNGs with an orientation."""
    files = [encode(_convert(_IMAGE, mode), kind, **options) for kind, mode, options in _RARE]
    frames = {"save_all": True, "append_images": [_IMAGE.rotate(90), _IMAGE.rotate(180)]}
    files += [data for data, _ in [*test_formats.SEEN.values(), *test_tiff.SEEN.values()]]
    files += [encode(_IMAGE, kind, **frames) for kind in ("GIF", "WEBP", "PNG", "TIFF")]
    text = PngInfo()
    text.add_itxt("XML:com.adobe.xmp", _XMP)
    files += [encode(_IMAGE, "PNG", exif=turned(6)), encode(_IMAGE, "PNG", pnginfo=text)]
    return [*files, heic(_IMAGE)]


def _convert(image: Image.Image, mode: str) -> Image.Image:
    return image.convert("L").convert(mode) if mode == "I;16" else image.convert(mode)

import contextlib
import dataclasses
import io
import struct
import sys
from collections.abc import Iterator
from typing import Any

import imagecodecs
import numpy as np
import pytest
import simplejpeg
import tensorflow as tf
from PIL import Image, ImageOps
from PIL.PngImagePlugin import PngInfo

from components.images.canonical import decode_upright
from components.images.check import check_image, convert
from components.images.check_result import Category, Rejected
from components.images.jpeg_frame import read_orientation, state_orientation
from components.images.transcode import find_orientation
from components.images.upright import read_orientations
from components.ingest.config import IngestConfig
from components.trainer.input.host_calls import _DECODERS
from tests.pictures import encode, picture, png_bomb, turned

CONFIG = IngestConfig(max_image_mpixels=1, min_image_pixels=8)
HEADER = dataclasses.replace(CONFIG, check="header")


def seen_by_a_person(data: bytes) -> np.ndarray[Any, Any]:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def seen_by_the_model(data: bytes) -> np.ndarray[Any, Any]:
    """Return pixels that may be subtracted."""
    image, _ = decode_upright(tf.constant(data), read_orientations(tf.constant([data]))[0])
    return image.numpy().astype(int)  # type: ignore[no-any-return]


KEPT: dict[str, tuple[str, str, dict[str, Any]]] = {
    "JPEG": ("JPEG", "RGB", {}),
    "JPEG of a phone": ("MPO", "RGB", {}),
    "JPEG, gray": ("JPEG", "L", {}),
    "JPEG, progressive": ("JPEG", "RGB", {"progressive": True}),
    "PNG": ("PNG", "RGB", {}),
    "PNG, gray": ("PNG", "L", {}),
    "PNG, palette": ("PNG", "P", {}),
    "PNG, black and white": ("PNG", "1", {}),
    "BMP": ("BMP", "RGB", {}),
    "GIF": ("GIF", "P", {}),
}


@pytest.mark.parametrize("name", KEPT)
def test_kept_byte_for_byte(name: str) -> None:
    image_format, mode, options = KEPT[name]
    data = encode(picture(1).convert(mode), image_format, **options)
    checked = check_image(data, CONFIG)
    expected = {"MPO": "jpeg"}.get(image_format, image_format.lower())
    assert checked.encoded == data
    assert (checked.format, checked.height, checked.width) == (expected, 24, 32)
    assert checked.channels == (1 if mode in ("1", "L") else 3)
    gray = np.asarray(Image.open(io.BytesIO(data)).convert("L"))
    assert checked.luminance == pytest.approx(gray.mean(), abs=1)
    decoded = tf.io.decode_image(data, channels=3, expand_animations=False).numpy()
    # Two JPEG decoders may round differently.
    assert np.abs(decoded.astype(int) - seen_by_a_person(data)).max() <= 3


ANIMATED = {"save_all": True, "append_images": [picture(2).convert("P")]}
TRANSCODED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "CMYK": ("JPEG", "CMYK", {}),
    "WebP": ("WEBP", "RGB", {"lossless": True}),
    "TIFF": ("TIFF", "RGB", {}),
    # TensorFlow takes palette indices for shades of gray.
    "BMP with a palette": ("BMP", "P", {}),
    # It decodes all frames, which may exceed the memory, to return the first.
    "animated GIF": ("GIF", "P", ANIMATED),
    "gray PNG with transparency": ("PNG", "LA", {}),
}


@pytest.mark.parametrize("name", TRANSCODED)
def test_transcoded_to_what_a_person_sees(name: str) -> None:
    image_format, mode, options = TRANSCODED[name]
    data = encode(picture(1).convert(mode), image_format, **options)
    checked = check_image(data, CONFIG)
    assert checked.format == ("jpeg" if image_format == "JPEG" else "png")
    differences = np.abs(seen_by_the_model(checked.encoded) - seen_by_a_person(data))
    # A JPEG is encoded a second time, also for the server.
    assert differences.mean() < (2 if image_format == "JPEG" else 1e-6)
    served = convert(data, CONFIG)
    assert (seen_by_the_model(served) == seen_by_the_model(checked.encoded)).all()


@pytest.mark.parametrize("quality", [30, 75, 97])
def test_a_jpeg_that_is_encoded_again_hardly_changes(quality: int) -> None:
    image = Image.effect_noise((320, 240), 60).convert("CMYK")
    data = encode(image, "JPEG", quality=quality)
    seen, wanted = seen_by_a_person(data), np.asarray(image.convert("RGB")).astype(int)
    again = seen_by_the_model(check_image(data, CONFIG).encoded)
    assert np.abs(again - wanted).mean() < 1.2 * np.abs(seen - wanted).mean() + 0.5


XMP = '<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
SAYS_SIX = XMP.encode()
ENTRY = struct.pack("<HHIHH", 0x0112, 3, 1, 6, 0)
COMMENT = b"\xff\xfe\0\4no"


def exif(*entries: bytes) -> bytes:
    return b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<H", len(entries)) + b"".join(entries)


def with_exif(content: bytes) -> bytes:
    return encode(picture(1), "JPEG", exif=b"Exif\0\0" + content)


def camera(orientation: int, **options: Any) -> bytes:
    return encode(picture(1), "JPEG", **{"exif": turned(orientation), **options})


def turned_png(name: str, text: str) -> bytes:
    chunks = PngInfo()
    if name == "XML:com.adobe.xmp":
        chunks.add_itxt(name, text)
    else:
        chunks.add_text(name, text)
    return encode(picture(1), "PNG", pnginfo=chunks)


def behind(segments: bytes, data: bytes) -> bytes:
    """Put `segments` before those of a JPEG."""
    return data[:2] + segments + data[2:]


HEX = exif(ENTRY)[6:].hex()
THUMB = camera(3)
PREVIEW = b"\xff\xe1" + (10 + len(THUMB)).to_bytes(2, "big") + b"preview\0" + THUMB
# Files that the graph turns as Pillow does.
ORIENTED = {
    **{f"EXIF {number}": camera(number) for number in range(1, 9)},
    "MPO": encode(picture(1), "MPO", exif=exif(ENTRY)),
    "progressive": camera(6, progressive=True),
    "a video behind the image": camera(6) + b"\0\0\0\x18ftypmp42" + bytes(10_000),
    "with a preview": behind(PREVIEW, camera(6)),
    "behind another segment": behind(b"\xff\xe2\xea\x62" + bytes(60_000), camera(6)),
    "a segment that only mentions EXIF": behind(b"\xff\xe2\0\x10Exif\0\0" + bytes(8), camera(6)),
    "big endian": with_exif(struct.pack(">2sHIHHHIHHI", b"MM", 42, 8, 1, 274, 3, 1, 6, 0, 0)),
    "a long number": with_exif(struct.pack("<2sHIHHHIII", b"II", 42, 8, 1, 274, 4, 1, 6, 0)),
    "out of range": with_exif(struct.pack("<2sHIHHHIHHI", b"II", 42, 8, 1, 274, 3, 1, 9, 0, 0)),
    "truncated EXIF": with_exif(b"II*\0\x08\0\0\0\x09\0\x12"),
    "EXIF without a directory": with_exif(b"MM\0*\xff\xff\xff\xff"),
    "EXIF behind a comment and a fill byte": behind(COMMENT + b"\xff", camera(6)),
    "EXIF says upright, XMP does not": camera(1, xmp=SAYS_SIX),
    "XMP": encode(picture(1), "JPEG", xmp=SAYS_SIX),
    "XMP in a PNG": turned_png("XML:com.adobe.xmp", XMP),
    "empty EXIF behind a PNG": encode(picture(1), "PNG") + b"eXIf",
    "EXIF in a PNG": encode(picture(1), "PNG", exif=exif(ENTRY)[6:]),
}
# Files whose metadata Pillow and the graph may read differently.
ODD = {
    "EXIF as text in a PNG": turned_png("Raw profile type exif", f"\nexif\n{len(HEX)}\n{HEX}\n"),
    "XMP behind a JPEG": encode(picture(1), "JPEG") + SAYS_SIX,
    "XMP in a JPEG's comment": encode(picture(1), "JPEG", comment=SAYS_SIX),
    "XMP in a PNG's comment": turned_png("Comment", XMP),
    "one more EXIF in a PNG": encode(picture(1), "PNG") + b"eXIf" + bytes.fromhex(HEX),
    "two tags": camera(1, exif=exif(ENTRY, ENTRY.replace(b"\6", b"\1"))),
    "no TIFF header": camera(1, exif=exif(ENTRY).replace(b"*", b"?")),
    "behind more segments than the graph skips": behind(1001 * COMMENT, camera(6)),
    "behind what the graph searches": behind(b"\xff\xed\xff\xff" + bytes(65_533), camera(6)),
    "across the end of what it searches": behind(b"\xff\xed\xff\xe1" + bytes(65_503), camera(6)),
    **{f"{kind} 6": encode(picture(1), kind, exif=turned(6)) for kind in ("TIFF", "WEBP", "AVIF")},
}


@pytest.mark.parametrize("check", ["pixels", "header"])
@pytest.mark.parametrize("name", [*ORIENTED, *ODD])
def test_the_model_sees_images_upright(name: str, check: Any) -> None:
    """What it can read is kept; Pillow and the graph look for orientation in different places."""
    data = (ORIENTED | ODD)[name]
    checked = check_image(data, dataclasses.replace(CONFIG, check=check))
    assert name in ODD or checked.encoded is data
    served = convert(data, CONFIG)
    assert (served is data) is (name in ORIENTED)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    for encoded in (checked.encoded, served):
        seen = seen_by_the_model(encoded)
        assert seen.shape == (checked.height, checked.width, 3) == (*upright.size[::-1], 3)
        assert np.abs(seen - np.asarray(upright)).mean() < 1.5


@pytest.mark.parametrize("orientation", [1, 6])
def test_phone_photos_need_no_pillow(monkeypatch: pytest.MonkeyPatch, orientation: int) -> None:
    """They would take seconds to load, and milliseconds per image."""
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    monkeypatch.setattr(Image, "open", lambda file: pytest.fail("opened"))
    data = behind(COMMENT, camera(orientation))
    assert check_image(data, CONFIG).encoded == data


LAST, HEAD = range(0xF0, 0x100), b"\x01\x00" + ENTRY


def test_a_stated_orientation_is_what_pillow_and_the_graph_read() -> None:
    random, whole, files = np.random.default_rng(0), camera(6), []
    start = whole.index(b"Exif")
    for _ in range(400):
        data = bytearray(whole)
        for place in random.integers(start, start + 32, 2):
            data[place] = random.choice([0, 1, 3, 6, 8, 0x12, 0x49, 0x4D, 255])
        files.append(bytes(data))
    # Truncated metadata, and directories that lie outside.
    files += [whole[: start + 10 + random.integers(0, 40)] for _ in range(20)]
    files += [with_exif(b"II*\0" + bytes([number, *b"\xff\xff\xff"]) + HEAD) for number in LAST]
    files += [*(ORIENTED | ODD).values(), b"\x89PNG", b"\xff\xd8\xff\xe1", b"6"]
    read = read_orientations(tf.constant(files)).numpy().tolist()
    assert [read_orientation(file) for file in files] == read
    stated = [state_orientation(file) for file in files]
    assert len({*stated}) > 3
    for file, graph, orientation in zip(files[:400], read, stated, strict=False):
        pillow = graph
        with contextlib.suppress(OSError):  # Pillow refuses some odd directories.
            pillow = find_orientation(file, Image.open(io.BytesIO(file)))
        assert orientation in (None, graph if graph == pillow else None)


def jpegs() -> Iterator[tuple[str, bytes]]:
    """Yield JPEGs of all subsamplings and kinds, with odd sides."""
    random = np.random.default_rng(0)
    noise = random.integers(0, 256, (33, 17, 3), np.uint8)
    smooth = np.asarray(picture(1, height=17, width=33))
    for pixels in (noise, smooth):
        for name in ("444", "422", "420", "440", "411"):
            yield name, simplejpeg.encode_jpeg(pixels, quality=60, colorsubsampling=name)
        image = Image.fromarray(pixels)
        for sampling in (0, 1, 2):
            for options in ({}, {"progressive": True}, {"restart_marker_blocks": 1}):
                for mode in ("RGB", "L", "CMYK"):
                    kind = f"{sampling} {options} {mode}"
                    yield kind, encode(image.convert(mode), "JPEG", subsampling=sampling, **options)
        yield "RGB", encode(image, "JPEG", keep_rgb=True)


def test_transform_dataset_and_pillow_agree_on_every_jpeg_to_one_level() -> None:
    for kind, data in jpegs():
        stored = check_image(data, CONFIG).encoded
        assert (stored is data) is ("CMYK" not in kind)
        if stored is data:
            seen = seen_by_the_model(stored)
            assert np.abs(seen - seen_by_a_person(data)).max() <= 1, kind
            read = np.empty(seen.shape, np.uint8)
            _DECODERS["jpeg"]([memoryview(stored)], read[np.newaxis])
            assert np.abs(seen - read).max() <= 1, kind


def test_a_jpeg_that_the_served_model_would_not_read_is_transcoded() -> None:
    pixels = np.asarray(picture(1))
    lossless, gray = imagecodecs.jpeg8_encode(pixels, lossless=True), pixels[..., 1].copy()
    between = JPEG[:20] + b"\0\0" + JPEG[20:]
    for data in (between, bytes(lossless), bytes(imagecodecs.ljpeg_encode(gray))):
        stored = (check_image(data, config).encoded for config in (CONFIG, HEADER))
        for encoded in (*stored, convert(data, CONFIG)):
            assert encoded != data
            assert np.abs(seen_by_the_model(encoded) - seen_by_a_person(data)).mean() < 1


def test_a_jpeg_with_too_many_scans_is_rejected() -> None:
    data = encode(picture(1), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    with pytest.raises(Rejected, match="more than 250 scans"):
        check_image(data[:last] + data[last:-2] * 300 + b"\xff\xd9", CONFIG)


@pytest.mark.parametrize("options", [{}, {"progressive": True}])
def test_scans_after_the_image_are_ignored(options: Any) -> None:
    data = encode(picture(1), "JPEG", **options) + b"\xff\xda\0\2" * 300
    for config in (CONFIG, HEADER):
        assert check_image(data, config).encoded is data
    # If the first scan is one component of three, they belong to the image.
    parts = JPEG.replace(b"\0\x0c\x03\x01\0\x02\x11\x03\x11", b"\0\x08\x01\x01\0")
    assert parts != JPEG
    with pytest.raises(Rejected, match="more than 250 scans"):
        check_image(parts[:-2] + b"\xff\xda\0\2" * 300 + b"\xff\xd9", CONFIG)


def test_a_side_above_the_limit_of_decoders_is_rejected() -> None:
    for kind in ("PNG", "TIFF"):
        data = encode(Image.new("RGBA", (1_000_001, 1)), kind)
        with pytest.raises(Rejected, match="1000001 x 1 pixels: a side exceeds 65500") as caught:
            check_image(data, IngestConfig())
        assert caught.value.category == Category.TOO_LARGE


def test_reasons_do_not_name_tensorflow_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow's message is plainer, but it may decode what TensorFlow does not."""
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda _: None)
    with pytest.raises(Rejected, match=r"^PNG: [^{]*$") as caught:
        check_image(PNG[: len(PNG) // 2], CONFIG)
    assert "[Op:" not in str(caught.value)


def test_header_check_decodes_nothing_and_finds_truncated_files() -> None:
    for data in (JPEG, PNG):
        checked = check_image(data, HEADER)
        assert (checked.encoded, checked.luminance) == (data, None)
        assert (checked.height, checked.width, checked.channels) == (200, 200, 3)
        with pytest.raises(Rejected):
            check_image(data[: len(data) // 2], HEADER)


SHRUNK = {
    "a photograph": ("JPEG", "RGB", (600, 800), (96, 128)),
    "upright": ("JPEG", "RGB", (900, 300), (288, 96)),
    "gray": ("JPEG", "L", (300, 400), (96, 128)),
    "PNG": ("PNG", "RGB", (300, 400), (96, 128)),
    "WebP": ("WEBP", "RGB", (300, 400), (96, 128)),
}


@pytest.mark.parametrize("name", SHRUNK)
def test_images_are_shrunk_as_by_pillow(name: str) -> None:
    image_format, mode, size, expected = SHRUNK[name]
    config = IngestConfig(shrink=96, check="header")
    small = encode(picture(1), image_format)
    if image_format in ("JPEG", "PNG", "BMP"):
        assert check_image(small, config).encoded == small
    image = picture(1, height=size[0], width=size[1]).convert(mode)
    checked = check_image(encode(image, image_format), config)
    assert (checked.format, checked.height, checked.width) == ("jpeg", *expected)
    assert checked.channels == (1 if mode == "L" else 3)
    decoded = tf.io.decode_jpeg(checked.encoded).numpy().squeeze().astype(int)
    oracle = np.asarray(image.resize(expected[::-1], Image.Resampling.BOX)).astype(int)
    assert np.abs(decoded - oracle).mean() < 2


def test_the_header_decides_the_size_of_a_shrunk_jpeg() -> None:
    """As in the served graph. At half the scale, 116 pixels wide, it would become 19 pixels."""
    data = encode(picture(1, height=200, width=231), "JPEG")
    checked = check_image(data, IngestConfig(shrink=16))
    assert (checked.height, checked.width) == (16, 18)


def test_shrinking_averages_fine_patterns() -> None:
    stripes = np.tile(np.array([[0, 255]], np.uint8), (512, 256))
    checked = check_image(encode(Image.fromarray(stripes), "JPEG"), IngestConfig(shrink=64))
    decoded = tf.io.decode_jpeg(checked.encoded).numpy()
    assert np.abs(decoded.astype(int) - 128).max() < 12


def test_transparency_shows_white() -> None:
    invisible = picture(1).convert("RGBA")
    invisible.putalpha(Image.new("L", invisible.size, 0))
    checked = check_image(encode(invisible, "PNG"), CONFIG)
    assert (tf.io.decode_png(checked.encoded, channels=3).numpy() == 255).all()
    image = picture(1).quantize(4)
    data = encode(image, "GIF", transparency=0)
    decoded = tf.io.decode_png(check_image(data, CONFIG).encoded, channels=3).numpy()
    background = np.asarray(image) == 0
    assert background.any()
    assert (decoded[background] == 255).all()
    np.testing.assert_array_equal(decoded[~background], seen_by_a_person(data)[~background])


JPEG = encode(picture(1, height=200, width=200), "JPEG")
PNG = encode(picture(1, height=200, width=200), "PNG")

BROKEN = {
    "empty": (b"", Category.NOT_AN_IMAGE),
    "text": (b"not an image at all", Category.NOT_AN_IMAGE),
    "HTML": (b"<!doctype html><title>404</title>", Category.NOT_AN_IMAGE),
    "JPEG cut in half": (JPEG[: len(JPEG) // 2], Category.TRUNCATED),
    "JPEG cut, with an end marker": (JPEG[: len(JPEG) // 2] + b"\xff\xd9", Category.TRUNCATED),
    "PNG cut in half": (PNG[: len(PNG) // 2], Category.TRUNCATED),
    "PNG with a damaged chunk": (PNG[:60] + b"\0\1\2\3" + PNG[64:], Category.UNREADABLE),
    "decompression bomb": (png_bomb(50_000, 50_000), Category.TOO_LARGE),
    "a little too large": (encode(picture(1, height=1001, width=1000), "PNG"), Category.TOO_LARGE),
    "too small": (encode(picture(1, height=7, width=32), "PNG"), Category.TOO_SMALL),
}


@pytest.mark.parametrize("name", BROKEN)
def test_rejected_with_category_and_reason(name: str) -> None:
    data, category = BROKEN[name]
    with pytest.raises(Rejected) as caught:
        check_image(data, CONFIG)
    assert caught.value.category == category
    assert str(caught.value)
    assert ("max_image_mpixels" in str(caught.value)) == (category is Category.TOO_LARGE)

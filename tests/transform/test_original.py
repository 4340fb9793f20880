import io
from typing import Any

import numpy as np
import pytest
import simplejpeg
import tensorflow as tf
from PIL import Image

from components.images.canonical import decode_file
from components.images.options import TransformConfig
from components.images.transcode import as_seen
from components.transform import shard_writer
from components.transform.shard_writer import keep_original
from tests.pictures import encode, picture, turned

# TensorFlow takes seconds to load.
pytestmark = pytest.mark.slow

CONFIG = TransformConfig(storage="originals")
PICTURE = picture(4, height=60, width=80)


KEPT = {
    "4:4:4": encode(PICTURE, "JPEG", subsampling=0),
    "4:2:0": encode(PICTURE, "JPEG", subsampling=2),
    "gray": encode(PICTURE.convert("L"), "JPEG"),
    "progressive": encode(PICTURE, "JPEG", progressive=True),
    "EXIF says upright": encode(PICTURE, "JPEG", exif=turned(1)),
}

CHANGED = {
    "PNG": encode(PICTURE, "PNG"),
    "turned": encode(PICTURE, "JPEG", exif=turned(6)),
    "CMYK": encode(PICTURE.convert("CMYK"), "JPEG"),
    "turned PNG": encode(PICTURE, "PNG", exif=turned(6)),
}


@pytest.mark.parametrize("name", KEPT)
def test_an_upright_jpeg_is_kept_as_it_is(name: str) -> None:
    assert keep_original(KEPT[name], CONFIG) is KEPT[name]


@pytest.mark.parametrize("name", CHANGED)
def test_other_files_become_a_jpeg_as_a_person_sees_them(name: str) -> None:
    file = CHANGED[name]
    opened = Image.open(io.BytesIO(file))
    seen = as_seen(opened, orientation=opened.getexif().get(0x0112, 1))
    kept = keep_original(file, CONFIG)
    assert kept != file
    pixels = simplejpeg.decode_jpeg(kept, "RGB")
    assert pixels.shape == seen.shape
    # Encoded once; a wrong rotation, or CMYK taken for RGB, would be tens of levels off.
    assert np.abs(pixels.astype(int) - seen).mean() < 4
    np.testing.assert_array_equal(pixels, decode_file(tf.constant(kept)))
    assert keep_original(kept, CONFIG) is kept


@pytest.mark.parametrize(("chroma", "expected"), [("full", "444"), ("half", "420")])
def test_quality_and_chroma_follow_the_configuration(chroma: Any, expected: str) -> None:
    config = TransformConfig(storage="originals", chroma=chroma, quality=30)
    kept = keep_original(CHANGED["PNG"], config)
    assert simplejpeg.decode_jpeg_header(kept)[3] == expected
    assert len(kept) < len(keep_original(CHANGED["PNG"], CONFIG))


@pytest.mark.parametrize("file", [KEPT["4:2:0"], CHANGED["PNG"]], ids=["JPEG", "PNG"])
def test_a_huge_image_is_shrunk_once(monkeypatch: pytest.MonkeyPatch, file: bytes) -> None:
    monkeypatch.setattr(shard_writer, "_MOST_PIXELS", 1200)
    pixels = simplejpeg.decode_jpeg(keep_original(file, CONFIG), "RGB")
    assert pixels.shape == (30, 40, 3)
    expected = np.asarray(PICTURE.resize((40, 30), Image.Resampling.BOX))
    assert np.abs(pixels.astype(int) - expected).mean() < 3


def test_a_line_is_shortened_to_the_limit_of_jpeg() -> None:
    file = encode(Image.new("RGB", (70_000, 1), "red"), "PNG")
    assert simplejpeg.decode_jpeg(keep_original(file, CONFIG), "RGB").shape == (1, 65_500, 3)


@pytest.mark.parametrize("damage", [KEPT["4:2:0"][:-300], b"no image at all"])
def test_a_broken_file_is_an_error(damage: bytes) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        keep_original(damage, CONFIG)

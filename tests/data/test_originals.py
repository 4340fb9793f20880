from __future__ import annotations

import doctest
import io
from typing import Any, Literal

import cv2
import numpy as np
import pytest
import simplejpeg
from PIL import Image

from components.transform.config import TransformConfig
from pipeline_def.data import original_crops
from pipeline_def.data.original_crops import CropRule, OriginalDecoder, scale_for
from pipeline_def.data.sampler import TrainingOrder
from tests.pictures import encode, picture

SIZE = 32
MIN_AREA = 0.1

# Fraction of the image that is the largest window with the aspect of a window.
LARGEST = {"tower": 60 * 80 / (60 * 900)}

SHAPES = {
    "photograph": (375, 500),
    "upright": (500, 375),
    "panorama": (100, 1000),
    "tower": (900, 60),
    "square": (64, 64),
    "small": (5, 7),
    "a pixel": (1, 1),
}


def numbers(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).random((count, original_crops.NUMBERS), np.float32)


def decoder(
    *, min_area: float = MIN_AREA, flip: bool = False, fit: Literal["crop", "stretch"] = "crop"
) -> OriginalDecoder:
    config = TransformConfig(size=SIZE, fit=fit, storage="originals")
    return OriginalDecoder(config, TrainingOrder(min_crop_area=min_area, flip=flip))


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(original_crops) == (0, 2)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("keep_shape", [True, False])
def test_windows_lie_within_and_have_the_area_and_the_aspect(name: str, keep_shape: bool) -> None:
    height, width = SHAPES[name]
    rule = CropRule(MIN_AREA, keep_shape=keep_shape)
    found = [rule.draw(height, width, row) for row in numbers(500).tolist()]
    for top, left, rows, columns in found:
        assert 0 <= top <= height - rows
        assert 0 <= left <= width - columns
        unit = 1 if keep_shape else width / height
        # Of whole pixels, the largest within half a pixel.
        assert (columns - 0.5) / (rows + 0.5) <= 4 / 3 * unit + 1e-6
        assert (columns + 0.5) / max(rows - 0.5, 0.1) >= 3 / 4 * unit - 1e-6
        area = (rows + 0.5) * (columns + 0.5) / (height * width)
        # A panorama has no window of this area that is not too wide; then it is the largest.
        assert area >= min(MIN_AREA, LARGEST.get(name, 1)) - 1e-6
    if name == "photograph":
        areas = np.array([w.height * w.width for w in found]) / (height * width)
        # Uniform, up to the largest windows.
        assert areas.min() < 0.12
        assert 0.5 < areas.mean() < 0.6
        assert areas.max() > 0.97
        assert {top == 0 for top, *_ in found} == {True, False}


def jpeg(height: int, width: int, mode: str = "RGB", **options: Any) -> bytes:
    return encode(picture(2, height=height, width=width).convert(mode), "JPEG", **options)


FILES = {
    "4:4:4": jpeg(150, 200, subsampling=0),
    "4:2:0": jpeg(150, 200, subsampling=2),
    "4:2:2": jpeg(200, 150, subsampling=1),
    "gray": jpeg(90, 70, "L"),
    "progressive": jpeg(333, 500, progressive=True),
    "large": jpeg(700, 901, quality=95),
    "enlarged": jpeg(20, 30),
    "a line": jpeg(3, 90),
}


@pytest.mark.parametrize("name", FILES)
def test_pixels_are_those_of_the_whole_image_and_of_pillow(name: str) -> None:
    file, rows = FILES[name], numbers(12)
    image = Image.open(io.BytesIO(file)).convert("RGB")
    found = decoder().decode([memoryview(file)] * len(rows), rows)
    rule, scales = CropRule(MIN_AREA, keep_shape=True), set()
    for pixels, row in zip(found, rows.tolist(), strict=True):
        window = rule.draw(image.height, image.width, row)
        scale = scale_for(window, SIZE)
        scales.add(scale)
        whole = simplejpeg.decode_jpeg(file, "RGB", min_width=-(-image.width // scale))
        whole = whole if scale > 1 else simplejpeg.decode_jpeg(file, "RGB")
        top, left, height, width = window.shrunk(scale)
        part = whole[top : top + height, left : left + width]
        aliased = min(height, width) >= 2 * SIZE
        method = cv2.INTER_AREA if aliased else cv2.INTER_LINEAR
        np.testing.assert_array_equal(pixels, cv2.resize(part, (SIZE, SIZE), interpolation=method))
        # The window of whole pixels at that scale; shrunk by Pillow, which averages.
        corner = np.array([left, top]) * scale
        box = image.crop((*corner, *(corner + np.array([width, height]) * scale)))
        expected = np.asarray(box.resize((SIZE, SIZE), Image.Resampling.BILINEAR))
        assert np.abs(pixels.astype(int) - expected).mean() < 2
    assert scales >= {"large": {8}, "4:4:4": {2, 4}}.get(name, set())


def test_half_are_mirrored_if_that_is_asked_for() -> None:
    rows = numbers(16)
    files = [FILES["4:4:4"]] * len(rows)
    plain, mirrored = decoder().decode(files, rows), decoder(flip=True).decode(files, rows)
    for before, after, row in zip(plain, mirrored, rows, strict=True):
        np.testing.assert_array_equal(after, before[:, ::-1] if row[-1] < 0.5 else before)
    assert {bool(row[-1] < 0.5) for row in rows} == {True, False}
    np.testing.assert_array_equal(decoder().decode(files, rows), plain)


@pytest.mark.parametrize("file", [b"no image", FILES["4:4:4"][:-200]], ids=["none", "cut off"])
def test_what_is_damaged_is_refused(file: bytes) -> None:
    whole = np.array([[1, 0.5, 0, 0, 0]], np.float32)
    with pytest.raises(ValueError, match=r"the shard is damaged|Corrupt|Premature"):
        decoder().decode([file], whole)

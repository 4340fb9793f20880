"""Statistics of pixels against Pillow's own."""

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageStat

from components.images.pixel_statistics import (
    STATISTICS,
    measure_pixels,
    patch_covariance,
    pixel_moments,
)
from tests.pictures import picture, scene

SIDE = 64


def photographs(number: int) -> npt.NDArray[np.uint8]:
    return np.stack(
        [np.asarray(picture(n, height=SIDE, width=SIDE).convert("RGB")) for n in range(number)]
    )


def test_luma_is_that_of_pillow() -> None:
    images = photographs(4)
    measured = measure_pixels(images)
    for row, image in enumerate(images):
        gray = Image.fromarray(image).convert("L")
        assert abs(measured["contrast"][row] * 255 - ImageStat.Stat(gray).stddev[0]) < 0.5
        low, high = np.percentile(np.asarray(gray), (5, 99))
        assert abs(measured["brightness_low"][row] * 255 - low) < 2
        assert abs(measured["brightness_high"][row] * 255 - high) < 2


def test_blurring_lowers_sharpness_and_darkening_does_not() -> None:
    image = np.asarray(scene(1, (SIDE, SIDE)))
    images = np.stack([image, image // 3, cv2.GaussianBlur(image, (0, 0), 1.5)])
    sharp, darkened, blurred = measure_pixels(images)["sharpness"]
    assert blurred < 0.5 * sharp
    assert darkened > 0.8 * sharp


def test_blank_images() -> None:
    measured = measure_pixels(np.full((1, SIDE, SIDE, 3), 200, np.uint8))
    assert measured["contrast"][0] == measured["sharpness"][0] == 0
    assert np.isclose(measured["brightness_low"][0], 200 / 255)


def test_no_images_have_no_statistics() -> None:
    measured = measure_pixels(np.empty((0, 8, 8, 3), np.uint8))
    assert {name: values.shape for name, values in measured.items()} == dict.fromkeys(
        STATISTICS, (0,)
    )


def test_moments_of_the_first_images_of_a_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("components.images.pixel_statistics._IMAGES", 5)
    images = np.random.default_rng(0).integers(0, 256, (8, 5, 5, 3), np.uint8)
    batches = [(images[:3], None), (images[3:], None)]
    mean, variance = pixel_moments(batches)
    pixels = images[:5].reshape(-1, 3).astype(float)
    np.testing.assert_allclose(mean, pixels.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(variance, pixels.var(axis=0), rtol=1e-9)
    corners = [images[:5, y : y + 4, x : x + 4] for y in (0, 1) for x in (0, 1)]
    vectors = np.concatenate(corners, axis=-1).reshape(-1, 12)
    expected = np.cov(vectors, rowvar=False, bias=True)
    np.testing.assert_allclose(patch_covariance(batches), expected)

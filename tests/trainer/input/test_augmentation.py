import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageEnhance
from tensorflow.python.framework import config as framework_config

from components.trainer.config.input import AugmentationConfig
from components.trainer.input.augment import augment
from components.trainer.input.pixel_ops import _OPERATIONS, draw_numbers
from tests.pictures import picture

Array = np.ndarray[Any, Any]

SIDE = 48
OFF = AugmentationConfig(shift=0)
# Not square, so that height and width cannot be mixed up; noise, so that every pixel counts.
NOISE = np.random.default_rng(0).integers(0, 256, (16, 12, 20, 3), np.uint8)
SMOOTH = np.stack([np.asarray(picture(seed, height=SIDE, width=SIDE)) for seed in range(16)])
# Pixels encode their position: 5 levels are one pixel.
RAMP = np.zeros((16, SIDE, SIDE, 3), np.uint8)
RAMP[..., 0], RAMP[..., 1] = np.meshgrid(5 * np.arange(SIDE), 5 * np.arange(SIDE))
# Far from 0 and 255, so that nothing is clipped and colors change linearly.
PALE = np.random.default_rng(1).integers(110, 146, (16, SIDE, SIDE, 3), np.uint8)


@pytest.fixture(autouse=True, scope="module")
def _deterministic_as_in_training() -> Iterator[None]:
    tf.config.experimental.enable_op_determinism()
    yield
    # Not public, but other tests may draw without a seed, which determinism forbids.
    framework_config.disable_op_determinism()


def pixels(images: Array, *, seed: tuple[int, int] = (0, 1), **options: Any) -> Array:
    config = dataclasses.replace(OFF, **options)
    changed: Array = augment(tf.constant(images), seed=tf.constant(seed), config=config).numpy()
    return changed


EVERYTHING: dict[str, Any] = {
    "shift": 0.1,
    "flip": True,
    "min_crop_area": 0.5,
    "rotation": 20.0,
    "brightness": 0.3,
    "contrast": 0.3,
    "saturation": 0.3,
    "hue": 0.1,
    "cutout": 0.3,
    "policy": "trivial",
}
# Different paths: moves of whole pixels, all ops.
CASES = [{"shift": 0.1, "flip": True}, EVERYTHING]


def case_name(options: dict[str, Any]) -> str:
    return "everything" if options == EVERYTHING else "+".join(options)


every_case = pytest.mark.parametrize("options", CASES, ids=case_name)


@every_case
def test_only_the_seed_decides(options: dict[str, Any]) -> None:
    first, again = pixels(SMOOTH, **options), pixels(SMOOTH, **options)
    np.testing.assert_array_equal(first, again)
    for seed in [(0, 2), (1, 1)]:
        assert (pixels(SMOOTH, seed=seed, **options) != first).any()


@every_case
@pytest.mark.parametrize("batch", [0, 1])
def test_a_batch_may_be_empty_or_have_one_image(options: dict[str, Any], batch: int) -> None:
    assert pixels(NOISE[:batch], **options).shape == (batch, 12, 20, 3)


def test_no_options_change_nothing() -> None:
    np.testing.assert_array_equal(pixels(NOISE), NOISE)


def windows(image: Array, margin_y: int, margin_x: int) -> dict[bytes, tuple[int, int, bool]]:
    """Map every shift of an image, mirrored or not, to its offset."""
    margins = [(margin_y, margin_y), (margin_x, margin_x), (0, 0)]
    padded = np.pad(image, margins, mode="reflect")
    height, width, _ = image.shape
    offsets = {}
    for y in range(2 * margin_y + 1):
        for x in range(2 * margin_x + 1):
            window = padded[y : y + height, x : x + width]
            offsets[window.tobytes()] = (y - margin_y, x - margin_x, False)
            offsets[np.fliplr(window).tobytes()] = (y - margin_y, x - margin_x, True)
    return offsets


@pytest.mark.parametrize(
    ("shift", "flip", "margin_y", "margin_x"),
    [
        (0.1, False, 1, 2),  # of 12 and 20 pixels
        (0.1, True, 1, 2),
        (0.0, True, 0, 0),
        (0.5, True, 6, 10),  # the most: reflection reaches the middle
    ],
)
def test_shift_and_flip_move_whole_pixels(
    shift: float, flip: bool, margin_y: int, margin_x: int
) -> None:
    moves = set()
    for step in range(8):
        changed = pixels(NOISE, seed=(0, step), shift=shift, flip=flip)
        for image, source in zip(changed, NOISE, strict=True):
            moves.add(windows(source, margin_y, margin_x)[image.tobytes()])
    down, right, mirrored = (set(values) for values in zip(*moves, strict=True))
    # Both directions are independent: most pairs occur in 128 images.
    assert len({move[:2] for move in moves}) >= min(60, len(down) * len(right))
    assert (min(down), max(down)) == (-margin_y, margin_y)
    assert max(right) - min(right) >= 2 * margin_x - 1
    assert mirrored == ({False, True} if flip else {False})


def sampled(options: dict[str, Any]) -> Array:
    """Fit the affine matrix that sampled each image: [batch, 2, 3], as cv2 and Pillow take it."""
    y, x = np.mgrid[:SIDE, :SIDE]
    ramp = pixels(RAMP, **options)
    # Near the center, where nothing is reflected.
    disc = np.hypot(x - SIDE / 2, y - SIDE / 2) < SIDE / 4
    points = np.stack([x[disc], y[disc], np.ones(disc.sum())], axis=1)
    return np.stack(
        [np.linalg.lstsq(points, image[disc][:, :2] / 5, rcond=None)[0].T for image in ramp]
    )


@pytest.mark.parametrize(
    "options",
    [
        {"rotation": 180.0, "min_crop_area": 0.3},
        {"rotation": 10.0, "min_crop_area": 0.6, "flip": True, "shift": 0.2},
    ],
    ids=case_name,
)
def test_warps_match_opencv(options: dict[str, Any]) -> None:
    for image, source, affine in zip(
        pixels(SMOOTH, **options), SMOOTH, sampled(options), strict=True
    ):
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        expected = cv2.warpAffine(
            source, affine, (SIDE, SIDE), flags=flags, borderMode=cv2.BORDER_REFLECT
        )
        # cv2 works in 32nds of a pixel, and the matrix is fitted to hundredths.
        assert np.abs(image.astype(int) - expected).max() <= 3


def test_crops_match_a_resized_window_in_pillow() -> None:
    options: dict[str, Any] = {"min_crop_area": 0.3}
    areas, aspects = [], []
    for image, source, affine in zip(
        pixels(SMOOTH, **options), SMOOTH, sampled(options), strict=True
    ):
        width, height = SIDE * affine[0, 0], SIDE * affine[1, 1]
        # Sampling counts from the center of the first pixel, a window from its corner.
        left, top = affine[:, 2] + (1 - np.diag(affine)) / 2
        box = np.clip([left, top, left + width, top + height], 0, SIDE)
        np.testing.assert_allclose(box, [left, top, left + width, top + height], atol=0.3)
        resized = Image.fromarray(source).resize(
            (SIDE, SIDE), Image.Resampling.BILINEAR, tuple(box)
        )
        # At its edge Pillow ignores pixels outside of the window.
        inside = (slice(2, -2), slice(2, -2))
        assert np.abs(image[inside].astype(int) - np.asarray(resized)[inside]).max() <= 3
        areas.append(width * height / SIDE**2)
        aspects.append(width / height)
    assert min(areas) > 0.29
    assert max(areas) <= 1.01
    assert max(areas) - min(areas) > 0.4
    assert 0.74 < min(aspects) < 0.95
    assert 1.05 < max(aspects) < 1.35


def test_rotation_turns_either_way_and_keeps_the_size() -> None:
    affine = sampled({"rotation": 30.0})
    matrices = affine[:, :, :2]
    middle = [(SIDE - 1) / 2, (SIDE - 1) / 2, 1]
    np.testing.assert_allclose(affine @ middle, np.tile(middle[:2], (16, 1)), atol=0.1)
    degrees = np.degrees(np.arctan2(matrices[:, 1, 0], matrices[:, 0, 0]))
    assert -30.5 < degrees.min() < -15
    assert 15 < degrees.max() < 30.5
    np.testing.assert_allclose(
        matrices @ matrices.transpose(0, 2, 1), np.tile(np.eye(2), (16, 1, 1)), atol=0.01
    )


def recolored(**options: Any) -> tuple[Array, Array]:
    """Fit matrix [batch, 3, 3], for columns of RGB, and offset [batch, 3] of each image."""
    fits = []
    for image, source in zip(pixels(PALE, **options), PALE, strict=True):
        points = np.concatenate([source.reshape(-1, 3), np.ones((SIDE**2, 1))], axis=1)
        fits.append(np.linalg.lstsq(points, image.reshape(-1, 3), rcond=None)[0].T)
    return np.stack(fits)[:, :, :3], np.stack(fits)[:, :, 3]


def test_brightness_contrast_and_saturation_match_pillow() -> None:
    options: dict[str, Any] = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.6}
    matrices, offsets = recolored(**options)
    product = matrices.sum(axis=2).mean(axis=1)
    grays = [np.asarray(Image.fromarray(image).convert("L")).mean() for image in PALE]
    brightness = product + offsets.mean(axis=1) / grays
    contrast = product / brightness
    saturation = (matrices[:, 0, 0] - matrices[:, 1, 0]) / product
    for values, limit in ((brightness, 0.4), (contrast, 0.4), (saturation, 0.6)):
        assert 1 - limit - 0.02 < values.min() < 1 - limit / 2
        assert 1 + limit / 2 < values.max() < 1 + limit + 0.02
    factors = zip(brightness, contrast, saturation, strict=True)
    for image, source, (b, c, s) in zip(pixels(PALE, **options), PALE, factors, strict=True):
        expected = ImageEnhance.Brightness(Image.fromarray(source)).enhance(b)
        expected = ImageEnhance.Contrast(expected).enhance(c)
        expected = ImageEnhance.Color(expected).enhance(s)
        # Pillow truncates after each of the three; here the result is rounded.
        assert np.abs(image.astype(int) - np.asarray(expected)).max() <= 3


@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation"])
def test_colors_are_clipped_not_wrapped(name: str) -> None:
    extremes = 255 * (NOISE // 128)
    options: dict[str, Any] = {name: 0.5}
    changed = pixels(extremes, **options)
    # Factors of 0.5 to 1.5: a pixel that wraps around would end on the other side.
    assert changed[extremes == 255].min() >= 127
    assert changed[extremes == 0].max() <= 113


def test_hue_rotates_colors_and_keeps_gray() -> None:
    matrices, offsets = recolored(hue=0.25)
    eye = np.tile(np.eye(3), (16, 1, 1))
    np.testing.assert_allclose(matrices @ matrices.transpose(0, 2, 1), eye, atol=0.03)
    np.testing.assert_allclose(np.linalg.det(matrices), 1, atol=0.02)
    np.testing.assert_allclose(matrices.sum(axis=2), 1, atol=0.01)
    np.testing.assert_allclose(offsets, 0, atol=1)
    # The direction of HSV: a third of a circle turns red into green.
    axis = np.array([matrices[:, i - 1, i - 2] - matrices[:, i - 2, i - 1] for i in range(3)])
    turns = np.arctan2(axis.sum(axis=0) / math.sqrt(3), np.trace(matrices, axis1=1, axis2=2) - 1)
    turns /= 2 * math.pi
    assert -0.26 < turns.min() < -0.12
    assert 0.12 < turns.max() < 0.26


def test_cutout_paints_one_square_in_the_mean_color() -> None:
    many = np.tile(NOISE, (16, 1, 1, 1))
    corners, sizes = set(), set()
    for image, source in zip(pixels(many, cutout=0.5), many, strict=True):
        mean = np.round(source.mean(axis=(0, 1)))
        rows, columns = np.nonzero((image == mean).all(axis=2))
        top, left, height, width = rows.min(), columns.min(), np.ptp(rows) + 1, np.ptp(columns) + 1
        expected = source.copy()
        expected[top : top + height, left : left + width] = mean
        np.testing.assert_array_equal(image, expected)
        corners.add((int(top), int(left)))
        sizes.add((int(height), int(width)))
    assert max(sizes) == (6, 10)  # half of 12 and of 20
    assert min(height for height, _ in sizes) == 3  # the center at the edge
    assert len(corners) > 40


def expect(source: Array, operation: str, strength: float) -> Array:
    """Apply an operation of TrivialAugment by Pillow or OpenCV."""
    image = Image.fromarray(source)
    enhancers = {
        "brightness": ImageEnhance.Brightness,
        "contrast": ImageEnhance.Contrast,
        "saturation": ImageEnhance.Color,
    }
    if operation in enhancers:
        return np.asarray(enhancers[operation](image).enhance(1 + 0.99 * strength))
    angle, shear, far = math.radians(135) * strength, 0.99 * strength, 150 / 331 * SIDE * strength
    matrix, offset = {
        "identity": (np.eye(2), (0, 0)),
        "shear_x": (np.array([[1, shear], [0, 1]]), (0, 0)),
        "shear_y": (np.array([[1, 0], [shear, 1]]), (0, 0)),
        "translate_x": (np.eye(2), (far, 0)),
        "translate_y": (np.eye(2), (0, far)),
        "rotate": (
            np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]),
            (0, 0),
        ),
    }[operation]
    middle = np.full(2, (SIDE - 1) / 2)
    affine = np.column_stack([matrix, middle + offset - matrix @ middle])
    warped: Array = cv2.warpAffine(
        source,
        affine,
        (SIDE, SIDE),
        flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
        borderMode=cv2.BORDER_CONSTANT,
        borderValue=source.mean(axis=(0, 1)).tolist(),
    )
    return warped


def test_the_policy_draws_one_of_nine_operations_of_any_strength() -> None:
    many = np.tile(SMOOTH, (8, 1, 1, 1))
    random = draw_numbers(tf.constant(len(many)), tf.constant((0, 1)))
    names = np.array([*_OPERATIONS])[(random.operation.numpy() * 9).astype(int)]
    strengths = 2 * random.strength.numpy() - 1
    assert set(names) == {*_OPERATIONS}
    assert strengths.min() < -0.9 < 0.9 < strengths.max()
    changed = pixels(many, policy="trivial")
    for image, source, name, strength in zip(changed, many, names, strengths, strict=True):
        expected = expect(source, name, strength)
        # OpenCV works in 32nds of a pixel, Pillow truncates.
        assert np.abs(image.astype(int) - expected).mean() < 1, (name, strength)
        assert np.abs(image.astype(int) - expected).max() <= 8, (name, strength)


def test_an_op_does_not_change_the_random_numbers_of_another() -> None:
    shifted = pixels(NOISE, shift=0.5)
    for image, alone in zip(pixels(NOISE, shift=0.5, flip=True), shifted, strict=True):
        assert np.array_equal(image, alone) or np.array_equal(image, np.fliplr(alone))
    np.testing.assert_allclose(
        sampled({"rotation": 30.0, "min_crop_area": 0.5})[0, :, :2],
        np.diag(np.diag(sampled({"min_crop_area": 0.5})[0, :, :2]))
        @ sampled({"rotation": 30.0})[0, :, :2],
        atol=0.02,
    )

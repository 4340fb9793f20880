import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageEnhance, ImageOps

from components.trainer.config.augmentation import AugmentationConfig
from components.trainer.input import policy
from components.trainer.input.augment import augment
from components.trainer.input.policy import (
    Operation,
    apply_operations,
)
from tests.pictures import picture

Array = np.ndarray[Any, Any]
Oracle = Callable[[Image.Image, float], Image.Image]

# Not square, so that height and width cannot be mixed up.
HEIGHT, WIDTH = 40, 56
NOISE = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
SMOOTH = np.asarray(picture(1, height=HEIGHT, width=WIDTH))
# Edge cases: a single value, two values, rare large values.
FLAT = np.full_like(NOISE, 90)
HALVES = np.where(np.arange(WIDTH)[:, None] < 20, 250, 30) * np.ones_like(NOISE)
RARE = np.where(NOISE > 250, NOISE, 0).astype(np.uint8)
PICTURES = np.stack([NOISE, SMOOTH, FLAT, HALVES.astype(np.uint8), RARE])
STRENGTHS = [-1.0, -0.5, 0.0, 0.1, 0.3, 0.7, 1.0]


def enhanced(enhancer: Callable[[Image.Image], ImageEnhance._Enhance]) -> Oracle:
    def enhance(image: Image.Image, strength: float) -> Image.Image:
        return enhancer(image).enhance(1 + strength * policy.ENHANCEMENT)

    return enhance


def posterized(image: Image.Image, strength: float) -> Image.Image:
    return ImageOps.posterize(image, 8 - round(abs(strength) * policy.LOST_BITS))


def solarized(image: Image.Image, strength: float) -> Image.Image:
    return ImageOps.solarize(image, math.ceil(256 * (1 - abs(strength))))


VALUES: dict[Operation, Oracle] = {
    Operation.IDENTITY: lambda image, *_: image,
    Operation.BRIGHTNESS: enhanced(ImageEnhance.Brightness),
    Operation.CONTRAST: enhanced(ImageEnhance.Contrast),
    Operation.POSTERIZE: posterized,
    Operation.SOLARIZE: solarized,
    Operation.AUTOCONTRAST: lambda image, *_: ImageOps.autocontrast(image),
    Operation.EQUALIZE: lambda image, *_: ImageOps.equalize(image),
    Operation.COLOR: enhanced(ImageEnhance.Color),
    Operation.SHARPNESS: enhanced(ImageEnhance.Sharpness),
}


def about_center(matrix: Array) -> tuple[float, ...]:
    """Return Pillow's coefficients, from output to input, of a 2 x 2 matrix about the center."""
    center = np.array([WIDTH / 2, HEIGHT / 2])
    return tuple(np.column_stack([matrix, center - matrix @ center]).ravel())


def coefficients(kind: Operation, strength: float) -> tuple[float, ...]:
    shear, angle = strength * policy.SHEAR, math.radians(strength * policy.DEGREES)
    steps = [round(strength * min(policy.TRANSLATION * s, policy.MOST_PIXELS)) for s in (56, 40)]
    return {
        Operation.SHEAR_X: about_center(np.array([[1, shear], [0, 1]])),
        Operation.SHEAR_Y: about_center(np.array([[1, 0], [shear, 1]])),
        Operation.TRANSLATE_X: (1, 0, steps[0], 0, 1, 0),
        Operation.TRANSLATE_Y: (1, 0, 0, 0, 1, steps[1]),
        # Counter-clockwise, like `Image.rotate`.
        Operation.ROTATE: about_center(
            np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        ),
    }[kind]


MOVES = [kind for kind in Operation if Operation.SHEAR_X <= kind <= Operation.ROTATE]


def eagerly(images: Array, kinds: Array, strengths: Array) -> Array:
    changed: Array = apply_operations(
        tf.constant(images),
        tf.constant(kinds, tf.int32),
        strengths=tf.constant(strengths, tf.float32),
    ).numpy()
    return changed


def every_case(kinds: list[Operation]) -> tuple[Array, Array, Array]:
    """Return all combinations of pictures, operations and strengths, shuffled."""
    rows = [(i, k, s) for i in range(len(PICTURES)) for k in kinds for s in STRENGTHS]
    np.random.default_rng(0).shuffle(rows)
    pictures, operations, strengths = (np.array(column) for column in zip(*rows, strict=True))
    return PICTURES[pictures.astype(int)], operations.astype(int), strengths


def test_values_match_pillow_to_one_level() -> None:
    images, kinds, strengths = every_case(list(VALUES))
    changed = eagerly(images, kinds, strengths)
    for image, source, kind, strength in zip(changed, images, kinds, strengths, strict=True):
        expected = np.asarray(VALUES[kind](Image.fromarray(source), strength))
        difference = np.abs(image.astype(int) - expected).max()
        assert difference <= 1, f"{Operation(kind).name} at {strength}"


def test_moved_pixels_match_pillow() -> None:
    images, kinds, strengths = every_case(MOVES)
    changed = eagerly(images, kinds, strengths)
    y, x = np.mgrid[:HEIGHT, :WIDTH] + 0.5
    for image, source, kind, strength in zip(changed, images, kinds, strengths, strict=True):
        moves = coefficients(kind, strength)
        moved = Image.fromarray(source).transform(
            (WIDTH, HEIGHT), Image.Transform.AFFINE, moves, Image.Resampling.BILINEAR
        )
        from_x, from_y = np.array(moves).reshape(2, 3) @ np.stack([x, y, np.ones_like(x)]).reshape(
            3, -1
        )
        # Depth of each sampled pixel inside the source; Pillow does not blend at the edge.
        depth = np.minimum.reduce([from_x, WIDTH - from_x, from_y, HEIGHT - from_y])
        inside, outside = ((depth > 0.51), (depth < -0.51))
        pixels = image.reshape(-1, 3).astype(int)
        difference = np.abs(pixels - np.asarray(moved).reshape(-1, 3))[inside]
        name = f"{Operation(kind).name} at {strength}"
        # Both round the weights of two neighbors, which differ much in noise.
        assert difference.max(initial=0) <= 1, name
        mean = np.round(source.mean(axis=(0, 1)))
        assert np.abs(pixels[outside] - mean).max(initial=0) <= 1, name


@pytest.mark.parametrize("kind", Operation)
def test_a_batch_may_draw_a_single_operation(kind: Operation) -> None:
    alone = eagerly(PICTURES[:2], np.array([kind, kind]), np.array([0.5, -0.5]))
    among = eagerly(
        np.concatenate([PICTURES[:2]] * 2),
        np.array([kind, kind, Operation.ROTATE, Operation.EQUALIZE]),
        np.array([0.5, -0.5, 1, 1]),
    )
    np.testing.assert_array_equal(alone, among[:2])


def augmented(images: Array, **options: Any) -> Array:
    config = AugmentationConfig(**{"shift": 0, **options})
    labels = tf.zeros([len(images)], tf.int64)
    changed, _ = augment(tf.constant(images), labels, seed=(0, 1), config=config, classes=2)
    result: Array = changed.numpy()
    return result


def drawn(
    monkeypatch: pytest.MonkeyPatch, config: AugmentationConfig, count: int = 4096
) -> list[tuple[Array, Array]]:
    """Return operations and strengths of each round for `count` images."""
    rounds = []

    def record(images: tf.Tensor, operations: tf.Tensor, **more: Any) -> tf.Tensor:
        rounds.append((operations.numpy(), more["strengths"].numpy()))
        return images

    monkeypatch.setattr(policy, "apply_operations", record)
    policy.apply_policy(
        tf.zeros([count, 1, 1, 3], tf.uint8), seed=tf.constant([0, 1]), config=config
    )
    return rounds


def test_trivial_draws_one_of_14_operations_at_one_of_31_strengths_of_either_sign(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [(operations, strengths)] = drawn(monkeypatch, AugmentationConfig(policy="trivial"))
    counts = np.bincount(operations, minlength=14)
    # 293 each, with a standard deviation of 16.5.
    assert len(counts) == 14
    assert counts.min() > 220
    assert counts.max() < 370
    steps = np.round(np.abs(strengths) * 30)
    np.testing.assert_allclose(np.abs(strengths) * 30, steps, atol=1e-5)
    assert set(steps) == set(range(31))
    assert 0.45 < (strengths[steps > 0] < 0).mean() < 0.55
    assert abs(np.corrcoef(operations, strengths)[0, 1]) < 0.06


def test_a_policy_is_applied_after_geometry_and_before_colors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [(operations, strengths)] = drawn(monkeypatch, AugmentationConfig(policy="trivial"), count=64)
    monkeypatch.undo()
    geometry: dict[str, Any] = {"flip": True, "rotation": 20.0}
    colors: dict[str, Any] = {"brightness": 0.4}
    images = np.stack([SMOOTH] * 64)
    moved = augmented(images, **geometry)
    expected = augmented(eagerly(moved, operations, strengths), **colors)
    found = augmented(images, policy="trivial", **geometry, **colors)
    np.testing.assert_array_equal(found, expected)

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from pipeline_def.image import augment, canonicalize, channel_sums, decode
from tests.images import encode, picture

Canonicalize = Callable[..., tf.Tensor]


def in_tf_data(encoded: tf.Tensor, **options: Any) -> tf.Tensor:
    dataset = tf.data.Dataset.from_tensors(encoded).map(lambda x: canonicalize(x, **options))
    return next(iter(dataset))


@pytest.fixture(params=[canonicalize, in_tf_data], ids=["eager", "tf.data"])
def canonicalize_either_way(request: pytest.FixtureRequest) -> Canonicalize:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "BMP", "GIF"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_every_format_becomes_a_jpeg_of_the_size(
    canonicalize_either_way: Canonicalize, image_format: str, mode: str
) -> None:
    data = encode(picture(1, height=60, width=80).convert(mode), image_format)
    [canonical] = canonicalize_either_way(
        tf.constant([data]), size=32, fit="crop", quality=95
    ).numpy()
    image = Image.open(io.BytesIO(canonical))
    assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (32, 32))


def expected_crop(image: Image.Image) -> Image.Image:
    return image.crop((10, 0, 70, 60)).resize((32, 32), Image.Resampling.BILINEAR)


def expected_stretch(image: Image.Image) -> Image.Image:
    return image.resize((32, 32), Image.Resampling.BILINEAR)


@pytest.mark.parametrize(
    ("fit", "expected"), [("crop", expected_crop), ("stretch", expected_stretch)]
)
def test_pixels_are_those_of_pillow(
    canonicalize_either_way: Canonicalize,
    fit: str,
    expected: Callable[[Image.Image], Image.Image],
) -> None:
    image = picture(1, height=60, width=80)
    canonical = canonicalize_either_way(
        tf.constant([encode(image, "PNG")]), size=32, fit=fit, quality=100
    )
    pixels = decode(canonical, size=32).numpy()[0].astype(int)
    # JPEG at quality 100 is a few levels off; another crop or no antialiasing would be tens.
    assert np.abs(pixels - np.asarray(expected(image))).max() <= 6


def test_a_jpeg_of_the_right_size_is_kept_byte_for_byte(
    canonicalize_either_way: Canonicalize,
) -> None:
    data = encode(picture(1, height=32, width=32), "JPEG", quality=70)
    [canonical] = canonicalize_either_way(
        tf.constant([data]), size=32, fit="crop", quality=95
    ).numpy()
    assert canonical == data


def test_a_png_of_the_right_size_becomes_a_jpeg() -> None:
    data = encode(picture(1, height=32, width=32), "PNG")
    [canonical] = canonicalize(tf.constant([data]), size=32, fit="crop", quality=95).numpy()
    assert Image.open(io.BytesIO(canonical)).format == "JPEG"


def test_an_empty_batch_stays_empty() -> None:
    assert canonicalize(tf.zeros([0], tf.string), size=32, fit="crop", quality=95).shape == [0]


def test_decode_refuses_another_size() -> None:
    data = tf.constant([encode(picture(1, height=16, width=32), "JPEG")])
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode(data, size=32)


def test_channel_sums_are_exact() -> None:
    images = np.full((2, 256, 256, 3), 255, np.uint8)
    sums, squares = channel_sums(images)
    np.testing.assert_array_equal(sums, np.full([2, 3], 255 * 256**2))
    # More than 32 bits hold.
    np.testing.assert_array_equal(squares, np.full([2, 3], 255**2 * 256**2))


IMAGES = np.random.default_rng(0).integers(0, 256, (64, 12, 12, 3), np.uint8)


def test_same_seed_same_pixels_and_other_seed_others() -> None:
    first, again, other = (
        augment(IMAGES, seed=[0, step], shift=3, flip=True).numpy() for step in (5, 5, 6)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_nothing_asked_nothing_changed() -> None:
    np.testing.assert_array_equal(augment(IMAGES, seed=[0, 0], shift=0, flip=False), IMAGES)


def test_flip_mirrors_about_half_of_the_images() -> None:
    flipped = augment(IMAGES, seed=[0, 0], shift=0, flip=True).numpy()
    mirrored = [np.array_equal(a, b[:, ::-1]) for a, b in zip(flipped, IMAGES, strict=True)]
    same = [np.array_equal(a, b) for a, b in zip(flipped, IMAGES, strict=True)]
    assert [a != b for a, b in zip(mirrored, same, strict=True)] == [True] * len(IMAGES)
    assert 16 < sum(mirrored) < 48


def test_every_shift_is_a_window_of_the_reflected_image() -> None:
    shifted = augment(IMAGES, seed=[0, 0], shift=2, flip=False).numpy()
    padded = np.pad(IMAGES, [(0, 0), (2, 2), (2, 2), (0, 0)], mode="reflect")
    offsets = set()
    for image, source in zip(shifted, padded, strict=True):
        windows = {(y, x): source[y : y + 12, x : x + 12] for y in range(5) for x in range(5)}
        [offset] = [o for o, window in windows.items() if np.array_equal(window, image)]
        offsets.add(offset)
    assert {y for y, _ in offsets} == {x for _, x in offsets} == set(range(5))

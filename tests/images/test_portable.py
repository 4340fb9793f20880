"""The preparation for other runtimes, against TensorFlow's own codecs and resizing."""

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.images.canonical import canonicalize, decode
from components.images.jpeg_round_trip import round_trip
from components.images.options import ImageOptions, TransformConfig
from components.images.portable import find_kept, prepare
from tests.pictures import picture

PIXELS = np.asarray(picture(3, height=130, width=170))
NOISE = np.random.default_rng(1).integers(0, 256, PIXELS.shape, np.uint8)
# As it is; smaller; larger by a whole and by another factor; flat and tall.
SIZES = ((30, 30), (20, 17), (60, 90), (101, 131), (1, 40))


@pytest.mark.parametrize("half", [False, True])
def test_jpeg_round_trip_equals_libjpeg_turbo(half: bool) -> None:
    for image, (height, width), quality in itertools.product(
        (PIXELS, NOISE), ((16, 32), (33, 29)), (95, 40)
    ):
        cut = image[:height, :width]
        file = tf.io.encode_jpeg(cut, quality=quality, chroma_downsampling=half)
        expected = tf.io.decode_jpeg(file, dct_method="INTEGER_ACCURATE").numpy()
        given = tf.cast(cut[np.newaxis], tf.float32)
        [found] = round_trip(given, quality=quality, half_chroma=half).numpy()
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("options", "ingest"),
    [
        ({"fit": "crop", "storage": "png"}, {}),
        ({"fit": "stretch", "storage": "png", "margin": 3}, {}),
        ({"fit": "letterbox", "storage": "png"}, {}),
        ({"fit": "crop", "storage": "jpeg"}, {}),
        ({"fit": "letterbox", "storage": "jpeg", "chroma": "half"}, {"shrink": 40}),
        ({"fit": "crop", "storage": "raw"}, {"shrink": 100, "quality": 80}),
    ],
)
@pytest.mark.slow
def test_pixels_are_prepared_like_files(options: dict[str, Any], ingest: dict[str, Any]) -> None:
    config, shrinking = TransformConfig(size=30, **options), ImageOptions(**ingest)
    for height, width in SIZES:
        image = PIXELS[:height, :width]
        file = tf.io.encode_png(image)[tf.newaxis]
        expected = decode(canonicalize(file, config, ingest=shrinking), config).numpy()
        found = prepare(image[np.newaxis], config, ingest=shrinking).numpy()
        np.testing.assert_array_equal(found, expected)


def test_a_plain_resize_is_another_one() -> None:
    config = TransformConfig(size=30, storage="png", fit="stretch")
    expected = np.round(tf.image.resize(NOISE, [30, 30]).numpy())
    [found] = prepare(NOISE[np.newaxis], config, antialias=False).numpy()
    assert np.abs(found - expected).max() <= 1
    assert np.abs(found - prepare(NOISE[np.newaxis], config).numpy()).mean() > 20


def test_jpegs_of_the_right_size_are_not_encoded_again() -> None:
    config = TransformConfig(size=30, quality=60)
    cut = NOISE[:30, :30]
    jpeg, png = tf.io.encode_jpeg(cut, quality=90), tf.io.encode_png(cut)
    kept = canonicalize(jpeg[tf.newaxis], config).numpy()
    encoded = canonicalize(png[tf.newaxis], config).numpy()
    assert find_kept(kept, config)
    assert not find_kept(encoded, config)
    assert not find_kept(kept, TransformConfig(size=30, storage="png"))
    again = prepare(cut[np.newaxis], config).numpy()
    assert np.abs(again.astype(int) - cut).mean() > 5
    np.testing.assert_array_equal(prepare(cut[np.newaxis], config, from_jpeg=True)[0], cut)
    larger = NOISE[np.newaxis, :60, :60]
    same = prepare(larger, config, from_jpeg=True)
    np.testing.assert_array_equal(same, prepare(larger, config))

"""The preparation for other runtimes, against TensorFlow's own codecs and resizing."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.images.canonical import canonicalize, decode
from components.images.options import ImageOptions, TransformConfig
from components.images.portable import prepare
from tests.pictures import picture

PIXELS = np.asarray(picture(3, height=130, width=170))
# As it is; smaller; larger by a whole and by another factor; flat and tall.
SIZES = ((30, 30), (20, 17), (60, 90), (101, 131), (1, 40))


@pytest.mark.parametrize(
    ("options", "ingest", "difference"),
    [
        ({"fit": "crop", "storage": "png"}, {}, 0),
        ({"fit": "stretch", "storage": "png"}, {}, 0),
        ({"fit": "letterbox", "storage": "png"}, {}, 0),
        # The losses of JPEG are left out: levels of 255 on average.
        ({"fit": "crop", "storage": "jpeg"}, {}, 1.5),
        ({"fit": "letterbox", "storage": "jpeg", "chroma": "half"}, {"shrink": 40}, 4),
        ({"fit": "crop", "storage": "raw"}, {"shrink": 100, "quality": 80}, 3),
    ],
)
@pytest.mark.slow
def test_pixels_are_prepared_like_files(
    options: dict[str, Any], ingest: dict[str, Any], difference: float
) -> None:
    config, shrinking = TransformConfig(size=30, **options), ImageOptions(**ingest)
    for height, width in SIZES:
        image = PIXELS[:height, :width]
        file = tf.io.encode_png(image)[tf.newaxis]
        expected = decode(canonicalize(file, config, ingest=shrinking), config).numpy()
        found = prepare(image[np.newaxis], config, ingest=shrinking).numpy()
        assert np.abs(found.astype(int) - expected).mean() <= difference

"""Fuzzes how ingest and the server treat a file: `uv run -m tests.fuzz.images --seconds 600`.

The first byte chooses the options. A file is rejected in a sentence, or stored so that Transform
decodes it upright and in the recorded size, and the served model sees it as training does.
"""

from collections.abc import Iterator

import atheris
import numpy as np
import tensorflow as tf

from tests.fuzz.corpus import common_images, rare_images
from tests.fuzz.session import check_sentence, fuzz
from tests.trainer.export.test_signatures import CONFIG, predict

with atheris.instrument_imports(include=["components.images"]):
    from components.images.canonical import canonicalize, decode, decode_upright
    from components.images.check import check_image, convert
    from components.images.check_result import CheckedImage, Rejected
    from components.images.formats import open_image
    from components.images.options import MAX_SIDE, ImageOptions
    from components.images.thumbnails import make_thumbnail
    from components.images.upright import read_orientations

_OPTIONS = (
    ImageOptions(max_image_mpixels=1),
    ImageOptions(max_image_mpixels=1, shrink=8),
    ImageOptions(max_image_mpixels=1, check="header", min_image_pixels=2),
)


def make_seeds() -> Iterator[bytes]:
    """Yield an image of every kind with all options."""
    for image in (*common_images(), *rare_images()):
        for number in range(len(_OPTIONS)):
            yield bytes([number]) + image


def serve(data: bytes, options: ImageOptions) -> None:
    convert(data, options)


def check(data: bytes) -> None:
    """Check one file like ingest and the server."""
    options, file = _OPTIONS[data[0] % len(_OPTIONS) if data else 0], data[1:]
    for look in (open_image, serve):
        try:
            look(file, options)
        except Rejected as rejected:
            _check_reason(rejected)
    try:
        stored = check_image(file, options)
    except Rejected as rejected:
        _check_reason(rejected)
        return
    if options.check == "pixels":
        _check_stored(stored)


def _check_reason(rejected: Rejected) -> None:
    check_sentence(rejected)
    assert "{{" not in str(rejected), "a node of TensorFlow's graph is named"


_transform = tf.function(
    lambda files: canonicalize(files, CONFIG),
    input_signature=[tf.TensorSpec([None], tf.string)],
    autograph=False,
)


def _check_stored(stored: CheckedImage) -> None:
    assert max(stored.height, stored.width) <= MAX_SIDE
    encoded = tf.constant(stored.encoded)
    image, _ = decode_upright(encoded, read_orientations(encoded[tf.newaxis])[0])
    assert image.shape == (stored.height, stored.width, 3)
    make_thumbnail(stored.encoded)
    served = predict([stored.encoded])
    assert not any(served["error"]), served["error"]
    # The test model predicts the mean color of an image.
    logits = decode(_transform(encoded[tf.newaxis]), CONFIG).numpy().mean(axis=(1, 2)) / 16
    np.testing.assert_allclose(served["probabilities"], tf.nn.softmax(logits), atol=1e-4)


if __name__ == "__main__":
    check(next(make_seeds()))  # The first call traces the graphs, which no limit is for.
    fuzz(check, make_seeds(), words=(r"\xff\xd8", r"\xff\xda", "Exif", "eXIf", "tiff:Orientation"))

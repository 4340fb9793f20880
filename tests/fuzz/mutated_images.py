"""Damage images at random: each is rejected, or decoded alike by ingest, training and serving.

For any number of images: `uv run -m tests.fuzz.mutated_images 100000 [SEED]`.
"""

import collections
import sys
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from components.images.canonical import canonicalize, decode, decode_upright
from components.images.check import check_image
from components.images.check_result import CheckedImage, Rejected
from components.images.options import ImageOptions
from components.images.upright import read_orientations
from tests.fuzz.corpus import common_images
from tests.trainer.export.test_bad_files import CONFIG, predict

_BATCH = 64


def mutated(count: int, *, seed: int) -> Iterator[bytes]:
    """Yield damaged images: bytes changed, removed, doubled, or the end cut off."""
    random = np.random.default_rng(seed)
    whole = common_images()
    for number in range(count):
        data = bytearray(whole[number % len(whole)])
        for _ in range(int(random.integers(1, 4))):
            at, length = int(random.integers(0, len(data))), int(random.integers(1, 9))
            change = random.integers(0, 8)
            if change < 5:
                data[at] = random.integers(0, 256)
            elif change == 5:
                del data[at : at + length]
            elif change == 6:
                data[at:at] = data[at : at + length]
            else:
                del data[max(at, 20) :]
        yield bytes(data)


def run(count: int, *, seed: int) -> collections.Counter[str]:
    """Check `count` damaged images; return outcome → images."""
    ends: collections.Counter[str] = collections.Counter()
    stored: list[CheckedImage] = []
    for data in mutated(count, seed=seed):
        try:
            stored.append(check_image(data, ImageOptions(max_image_mpixels=4)))
        except Rejected as rejected:
            ends["named a node" if "{{" in str(rejected) else "rejected"] += 1
        else:
            ends["kept" if stored[-1].encoded == data else "transcoded"] += 1
        if len(stored) == _BATCH:
            _check_decoders(stored)
            stored = []
    _check_decoders(stored)
    return ends


_transform = tf.function(
    lambda files: canonicalize(files, CONFIG),
    input_signature=[tf.TensorSpec([None], tf.string)],
    autograph=False,
)


def _check_decoders(stored: list[CheckedImage]) -> None:
    """Compare Transform, the reader of its records and the served model on stored images."""
    files = [image.encoded for image in stored]
    for image in stored:
        file = tf.constant(image.encoded)
        pixels, _ = decode_upright(file, read_orientations(file[tf.newaxis])[0])
        assert pixels.shape == (image.height, image.width, 3)
    seen = decode(_transform(tf.constant(files, tf.string)), CONFIG).numpy()
    served = predict(files)
    assert not any(served["error"]), files[int(np.argmax(served["error"] != b""))]
    # The test model predicts the mean color of an image.
    logits = seen.astype(np.float32).mean(axis=(1, 2)) / 16
    np.testing.assert_allclose(served["probabilities"], tf.nn.softmax(logits), atol=1e-4)


if __name__ == "__main__":
    print(dict(run(int(sys.argv[1]), seed=int(sys.argv[2]) if sys.argv[2:] else 0)))

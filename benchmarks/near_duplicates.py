"""Measures how many altered copies of images are found.

    uv run -m benchmarks.near_duplicates --data DIR --images 400

Recall: each image of DIR against copies of itself, by ingest and by the features of a pretrained
network. Strangers: what is found among the images of DIR, half of them for testing; to look at, as
some images are near duplicates.
"""

import argparse
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps
from tf_keras import layers

from benchmarks.measuring import options
from benchmarks.measuring.results import Figures, write_results
from components.images.transcode import make_thumbprint
from components.ingest.config import IngestConfig
from components.ingest.plan.near_duplicates import find_groups
from components.report.suspects.copies import find_copies
from components.report.suspects.similar import Features
from components.trainer.config.model import ModelConfig
from components.trainer.image_pass import make_describe

_MODULE = "benchmarks.near_duplicates"
_BATCH = 32

Alter = Callable[[Image.Image], Image.Image]


def _parser() -> argparse.ArgumentParser:
    parser = options.make_parser(_MODULE, __doc__, repeats=1)
    parser.add_argument("--data", required=True, metavar="DIR")
    options.add_counts(parser, images=(400, "of DIR"))
    return parser


def _measure(arguments: argparse.Namespace) -> None:
    paths = sorted(path for path in Path(arguments.data).rglob("*") if path.is_file())
    chosen = paths[:: max(1, len(paths) // arguments.images)]
    images = [Image.open(path).convert("RGB") for path in chosen]
    originals = np.stack([_make_row(image) for image in images]), _describe(images)
    found = len(images) - len(np.unique(find_groups(originals[0])))
    halves = np.resize(["train", "test"], len(images))
    strangers = [found, len(_find_pairs(originals[1], halves))]
    title = f"Copies found, of {len(images):,} images"
    recall = Figures(title, ("copy", "by ingest", "by features"))
    shares = {}
    for name, alter in _make_copies().items():
        shares[name] = _measure_recall(*originals, [alter(image) for image in images])
        recall.add(name, *(f"{share:.3f}" for share in shares[name]))
    recall.add("strangers, pairs", *map(str, strangers))
    recall.show()
    figures = {"recall": shares, "strangers": strangers}
    write_results(_MODULE, [recall], figures, arguments.json)


def _measure_recall(
    rows: NDArray[np.uint8], features: Features, copies: Sequence[Image.Image]
) -> tuple[float, float]:
    """Return the fraction of the images that are found with their copies, by each method."""
    count = len(copies)
    groups = find_groups(np.concatenate([rows, [_make_row(copy) for copy in copies]]))
    splits = np.repeat(["train", "test"], count)
    pairs = _find_pairs(np.concatenate([features, _describe(copies)]), splits)
    found = sum((str(number), str(number + count)) in pairs for number in range(count))
    return float(np.mean(groups[:count] == groups[count:])), found / count


def _find_pairs(features: Features, splits: NDArray[Any]) -> set[tuple[str, ...]]:
    names = np.arange(len(splits)).astype(str).astype(object)
    columns = {
        "path": names,
        "sha256": names,
        "label": np.full_like(names, ""),
        "split": splits.astype(object),
    }
    return {tuple(copy.path for copy in pair) for pair in find_copies(columns, features)}


def _describe(images: Sequence[Image.Image]) -> Features:
    """Return the features of images that are as large as the model would see them."""
    side = 224 if np.median([min(image.size) for image in images]) >= 64 else 32
    seen = layers.Input((side, side, 3))
    describe = make_describe(tf_keras.Model(seen, seen), ModelConfig(weights="imagenet"))
    parts = []
    for start in range(0, len(images), _BATCH):
        part = [np.asarray(i.resize((side, side))) for i in images[start : start + _BATCH]]
        parts.append(np.float16(describe(tf.constant(np.stack(part)))))
    return np.concatenate(parts)


def _make_copies() -> dict[str, Alter]:
    random = np.random.default_rng(0)

    def crop(image: Image.Image) -> Image.Image:
        left, top, right, bottom = random.uniform(0, 0.05, 4) * [*image.size, *image.size]
        return image.crop(
            (int(left), int(top), image.width - int(right), image.height - int(bottom))
        )

    return {
        "half the size": lambda image: image.resize((image.width // 2, image.height // 2)),
        "JPEG, quality 40": lambda image: _recompress(image, 40),
        "brightened by a quarter": lambda image: ImageEnhance.Brightness(image).enhance(1.25),
        "cropped by up to 5 % at each edge": crop,
        "mirrored": ImageOps.mirror,
    }


def _recompress(image: Image.Image, quality: int) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file).convert("RGB")


def _make_row(image: Image.Image) -> NDArray[np.uint8]:
    picture = make_thumbprint(np.asarray(image), IngestConfig())
    return np.frombuffer(picture + bytes([min(*image.size, 255)]), np.uint8)


if __name__ == "__main__":
    sys.exit(options.run(_parser(), _measure))

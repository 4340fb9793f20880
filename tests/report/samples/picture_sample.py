"""Pictures for reports: samples, answered images, rejects and copies."""

import functools
from typing import get_args

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from components.contract.image_tables import Reason, Suspect
from components.images.thumbnails import Thumbnail, lay_over, picture_of
from components.metrics.classification_metrics import ModelMetrics
from components.metrics.predictions import Floats
from components.report.shown import (
    ClassSample,
    ImageMap,
    LabelErrors,
    PredictedImage,
    Reject,
    SuspectFacts,
)
from tests.pictures import encode, picture


def thumbnail(image: Image.Image) -> Thumbnail:
    return Thumbnail(encode(image, "JPEG"), image.width, image.height)


def digit(number: int, *, size: int = 32, angle: float = 0) -> Thumbnail:
    """One of the digits that scikit-learn has: 1,797 of 8 x 8 pixels, 0 first."""
    pixels = (_load_digits()[number % 1797] * 255 / 16).astype(np.uint8)
    image = Image.fromarray(pixels).resize((size, size), Image.Resampling.BICUBIC)
    return thumbnail(image.rotate(angle).convert("RGB"))


@functools.cache
def _load_digits() -> Floats:
    images: Floats = load_digits().images
    return images


def make_mistakes(labels: tuple[str, ...], number: int) -> tuple[PredictedImage, ...]:
    mistakes = []
    for place in range(number):
        label, predicted = labels[place % len(labels)], labels[(place + 1) % len(labels)]
        name = f"train/{label}/picture-{place:05d}-with-a-name-as-cameras-give-them.jpg"
        sure = 0.9996 * 0.97**place
        heat_map = draw_heat_map(place)
        picture = digit(place)
        mistakes.append(
            PredictedImage(name, label, predicted, sure, (1 - sure) / 2, picture, heat_map)
        )
    return tuple(mistakes)


def draw_heat_map(number: int) -> Thumbnail:
    """A hot spot somewhere on a digit."""
    pixels = (_load_digits()[number % 1797] * 255 / 16).astype(np.uint8)
    seen = Image.fromarray(pixels).resize((32, 32), Image.Resampling.BICUBIC).convert("RGB")
    across, down = np.meshgrid(np.arange(32), np.arange(32))
    heat = np.exp(-((across - 8 - number % 16) ** 2 + (down - 16) ** 2) / 30).astype(np.float32)
    return picture_of(lay_over(heat, np.asarray(seen)), side=192)


def make_images(metrics: ModelMetrics, *, each: int) -> tuple[PredictedImage, ...]:
    """Up to `each` of every pair of classes that occurs."""
    images = []
    for row, column in np.argwhere(metrics.confusion).tolist():
        for turn in range(min(each, int(metrics.confusion[row, column]))):
            label, predicted = metrics.labels[row], metrics.labels[column]
            name = f"test/{label}/{row}-{column}-{turn}.jpg"
            sure = 0.97 - 0.11 * turn
            image = PredictedImage(name, label, predicted, sure, 1 - sure, digit(row + 10 * turn))
            images.append(image)
    return tuple(images)


def make_reject(place: int) -> Reject:
    """Of every second one nothing can be seen."""
    seen = thumbnail(picture(place, height=72, width=96)) if place % 2 else None
    path = f"zero/broken-{place:03d}.jpg"
    return Reject(path, "truncated", "JPEG: Premature end of JPEG file", seen)


def make_suspects(labels: tuple[str, ...], *, points: int) -> SuspectFacts:
    """A wrong label and an odd image of each kind, and a map of `points` images."""
    similar = tuple(f"like/{labels[0]}/{n}.jpg" for n in (0, 1))
    kinds: tuple[Reason, ...] = get_args(Reason)
    rows = tuple(
        Suspect(
            f"{n:064d}", f"{labels[0]}/{n}.jpg", "train", labels[0], kind, 0.9, labels[1], similar
        )
        for n, kind in enumerate(kinds)
    )
    pictures = {row.path: digit(n) for n, row in enumerate(rows)}
    pictures |= {path: digit(n, size=24) for n, path in enumerate(similar)}
    names = [labels[n % len(labels)] for n in range(points)]
    return SuspectFacts(
        rows,
        rows,
        {kind: 1 + 40 * (kind == "outlier") for kind in kinds},
        LabelErrors(12, 20, 31, points),
        labels=dict.fromkeys(similar, labels[0]),
        pictures=pictures,
        image_map=ImageMap(
            tuple(f"{name}/{n}.jpg" for n, name in enumerate(names)),
            tuple(names),
            np.random.default_rng(6).random((points, 2)),
            frozenset(row.path for row in rows),
            10 * points,
        ),
    )


def sample_class(label: str, place: int) -> ClassSample:
    seen = [digit(place + 10 * i) for i in range(4)]
    augmented = [digit(place + 10 * i, angle=12 * (i - 1)) for i in range(4)]
    return ClassSample(label, tuple(seen), tuple(augmented))

import dataclasses
import doctest
import io
from typing import Any, Literal

import cv2
import numpy as np
import pytest
import simplejpeg
import tensorflow as tf
from PIL import Image

from components.images.canonical import canonicalize, decode
from components.images.options import TransformConfig
from components.trainer.config.augmentation import AugmentationConfig
from components.trainer.config.input import InputConfig
from components.trainer.config.training import TrainerConfig
from components.trainer.input import original_crops
from components.trainer.input.dataset import ReadPlan
from components.trainer.input.original_crops import CropRule, OriginalDecoder, scale_for
from components.trainer.input.pixel_ops import draw_numbers
from components.trainer.input.preview import preview
from components.trainer.input.sampler import TrainingOrder
from tests.pictures import COLOURS, encode, picture
from tests.trainer.input.shard_folder import (
    BATCH,
    FEATURE_SPEC,
    SIZE,
    ShardFolder,
    examples,
    write_shards,
)

MIN_AREA = 0.1

# Area of the largest crop with an allowed aspect ratio, as a fraction of the image.
LARGEST = {"tower": 60 * 80 / (60 * 900)}

SHAPES = {
    "photograph": (375, 500),
    "portrait": (500, 375),
    "panorama": (100, 1000),
    "tower": (900, 60),
    "square": (64, 64),
    "small": (5, 7),
    "a pixel": (1, 1),
}


def numbers(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).random((count, original_crops.NUMBERS), np.float32)


def decoder(
    *, min_area: float = MIN_AREA, flip: bool = False, fit: Literal["crop", "stretch"] = "crop"
) -> OriginalDecoder:
    config = TransformConfig(size=SIZE, fit=fit, storage="originals")
    return OriginalDecoder(config, TrainingOrder(min_crop_area=min_area, flip=flip))


def test_docstring_examples() -> None:
    assert doctest.testmod(original_crops) == (0, 2)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("keep_shape", [True, False])
def test_crops_have_the_area_and_the_aspect_ratio(name: str, keep_shape: bool) -> None:
    height, width = SHAPES[name]
    rule = CropRule(MIN_AREA, keep_shape=keep_shape)
    found = [rule.draw(height, width, row) for row in numbers(500).tolist()]
    for top, left, rows, columns in found:
        assert 0 <= top <= height - rows
        assert 0 <= left <= width - columns
        unit = 1 if keep_shape else width / height
        # Sides are rounded to whole pixels.
        assert (columns - 0.5) / (rows + 0.5) <= 4 / 3 * unit + 1e-6
        assert (columns + 0.5) / max(rows - 0.5, 0.1) >= 3 / 4 * unit - 1e-6
        area = (rows + 0.5) * (columns + 0.5) / (height * width)
        # No crop of a panorama has this area without being too wide; then it takes the largest.
        assert area >= min(MIN_AREA, LARGEST.get(name, 1)) - 1e-6
    if name == "photograph":
        areas = np.array([w.height * w.width for w in found]) / (height * width)
        # Uniform, up to the largest crops.
        assert areas.min() < 0.12
        assert 0.5 < areas.mean() < 0.6
        assert areas.max() > 0.97
        assert {top == 0 for top, *_ in found} == {True, False}


def jpeg(height: int, width: int, mode: str = "RGB", **options: Any) -> bytes:
    return encode(picture(2, height=height, width=width).convert(mode), "JPEG", **options)


FILES = {
    "4:4:4": jpeg(150, 200, subsampling=0),
    "4:2:0": jpeg(150, 200, subsampling=2),
    "4:2:2": jpeg(200, 150, subsampling=1),
    "gray": jpeg(90, 70, "L"),
    "progressive": jpeg(333, 500, progressive=True),
    "large": jpeg(700, 901, quality=95),
    "enlarged": jpeg(20, 30),
    "a line": jpeg(3, 90),
}


@pytest.mark.parametrize("name", FILES)
def test_pixels_match_the_whole_image_and_pillow(name: str) -> None:
    file, rows = FILES[name], numbers(12)
    image = Image.open(io.BytesIO(file)).convert("RGB")
    found = decoder().decode([memoryview(file)] * len(rows), rows)
    rule, scales = CropRule(MIN_AREA, keep_shape=True), set()
    for pixels, row in zip(found, rows.tolist(), strict=True):
        window = rule.draw(image.height, image.width, row)
        scale = scale_for(window, SIZE)
        scales.add(scale)
        whole = simplejpeg.decode_jpeg(file, "RGB", min_width=-(-image.width // scale))
        whole = whole if scale > 1 else simplejpeg.decode_jpeg(file, "RGB")
        top, left, height, width = window.shrunk(scale)
        part = whole[top : top + height, left : left + width]
        aliased = min(height, width) >= 2 * SIZE
        method = cv2.INTER_AREA if aliased else cv2.INTER_LINEAR
        np.testing.assert_array_equal(pixels, cv2.resize(part, (SIZE, SIZE), interpolation=method))
        # The same crop, shrunk by Pillow, which averages.
        corner = np.array([left, top]) * scale
        box = image.crop((*corner, *(corner + np.array([width, height]) * scale)))
        expected = np.asarray(box.resize((SIZE, SIZE), Image.Resampling.BILINEAR))
        assert np.abs(pixels.astype(int) - expected).mean() < 2
    assert scales >= {"large": {8}, "4:4:4": {2, 4}}.get(name, set())


def test_flip_mirrors_half_of_the_crops() -> None:
    rows = numbers(16)
    files = [FILES["4:4:4"]] * len(rows)
    plain, mirrored = decoder().decode(files, rows), decoder(flip=True).decode(files, rows)
    for before, after, row in zip(plain, mirrored, rows, strict=True):
        np.testing.assert_array_equal(after, before[:, ::-1] if row[-1] < 0.5 else before)
    assert {bool(row[-1] < 0.5) for row in rows} == {True, False}
    np.testing.assert_array_equal(decoder().decode(files, rows), plain)


@pytest.mark.parametrize("file", [b"no image", FILES["4:4:4"][:-200]], ids=["none", "cut off"])
def test_damaged_originals_are_rejected(file: bytes) -> None:
    whole = np.array([[1, 0.5, 0, 0, 0]], np.float32)
    with pytest.raises(ValueError, match=r"the shard is damaged|Corrupt|Premature"):
        decoder().decode([file], whole)


CONFIG = TransformConfig(size=SIZE, storage="originals")
ORDER = TrainingOrder(seed=3, min_crop_area=0.2, flip=True)
READERS = {
    "indexed": InputConfig(),
    "streamed": InputConfig(reader="streamed"),
    "encoded in memory": InputConfig(cache="encoded"),
}


def original(number: int) -> bytes:
    size = {"height": 60 + 7 * (number % 9), "width": 70 + 40 * (number % 4)}
    color = sorted(COLOURS)[number % 3]
    return encode(picture(number, colour=color, **size), "JPEG", quality=90)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ShardFolder:
    """40 originals in three shards; the label of each is its number."""
    path = tmp_path_factory.mktemp("originals")
    labels = {"train": list(range(40))}
    return write_shards(path, labels=labels, image=original, train=[13, 11, 16])


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_every_reader_takes_new_crops_in_every_epoch(folder: ShardFolder, name: str) -> None:
    options, files = READERS[name], folder.images["train"]
    plan = ReadPlan(folder.shards("train"), CONFIG, FEATURE_SPEC, BATCH, options, ORDER)
    decoder = OriginalDecoder(CONFIG, ORDER)
    dataset = folder.dataset("train", CONFIG, options=options, order=ORDER)
    batches = list(dataset.take(10).as_numpy_iterator())
    for number, (images, labels) in enumerate(batches):
        numbers = plan.draw_windows(tf.constant(number, tf.int64), tf.constant(labels)).numpy()
        # Of augmentation, by the same seed and step.
        others = draw_numbers(BATCH, tf.constant([ORDER.seed, number], tf.int64))
        assert not np.isin(numbers, np.concatenate(others)).any()
        expected = decoder.decode([files[label] for label in labels], numbers)
        np.testing.assert_array_equal(images, expected)
    for epoch in (batches[:5], batches[5:]):
        assert sorted(np.concatenate([labels for _, labels in epoch])) == list(range(40))
    # Other crops in the second epoch, and the same ones in a resumed run.
    seen: dict[int, set[bytes]] = {}
    for pixels, label in examples(dataset.take(10)):
        seen.setdefault(label, set()).add(pixels)
    assert all(len(of) == 2 for of in seen.values())
    later = dataclasses.replace(ORDER, start=7)
    rest = folder.dataset("train", CONFIG, options=options, order=later).take(3)
    for (images, labels), (again, ids) in zip(batches[7:], rest.as_numpy_iterator(), strict=True):
        np.testing.assert_array_equal(images, again)
        np.testing.assert_array_equal(labels, ids)


@pytest.mark.slow
def test_evaluation_reads_originals_as_the_served_model_does(folder: ShardFolder) -> None:
    batches = list(folder.dataset("train", CONFIG).as_numpy_iterator())
    expected = decode(canonicalize(tf.constant(folder.images["train"]), CONFIG), CONFIG)
    np.testing.assert_array_equal(np.concatenate([images for images, _ in batches]), expected)


@pytest.mark.slow
def test_the_report_shows_crops_beside_the_images_of_evaluation(folder: ShardFolder) -> None:
    files = folder.images["train"][:12]
    choices = TrainerConfig(
        transform=CONFIG, augmentation=AugmentationConfig(shift=0.0, min_crop_area=0.2)
    )
    seen, augmented = preview(files, dataclasses.asdict(choices))
    expected = decode(canonicalize(tf.constant(files), CONFIG), CONFIG)
    np.testing.assert_array_equal(seen, expected)
    assert (seen != augmented).any((1, 2, 3)).sum() > 9
    np.testing.assert_array_equal(augmented, preview(files, dataclasses.asdict(choices))[1])

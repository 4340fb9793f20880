from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.contract.errors import ConfigurationError
from components.contract.example import ENCODED, LABEL_ID
from components.images.canonical import canonicalize, decode
from components.records.record_index import write_indexed_shard
from components.records.shard_files import shard_path, write_index
from components.transform.config import TransformConfig
from pipeline_def.config.augmentation import AugmentationConfig
from pipeline_def.config.input import InputConfig
from pipeline_def.config.trainer import TrainerConfig
from pipeline_def.data.dataset import make_dataset
from pipeline_def.data.original_crops import OriginalDecoder
from pipeline_def.data.preview import preview
from pipeline_def.data.read_plan import ReadPlan
from pipeline_def.data.sampler import TrainingOrder
from pipeline_def.data.shards import Shards
from tests.data.shard_folder import BATCH, FEATURE_SPEC, SIZE, examples
from tests.pictures import COLOURS, encode, picture

# TensorFlow takes seconds to load.
pytestmark = pytest.mark.slow

CONFIG = TransformConfig(size=SIZE, storage="originals")
ORDER = TrainingOrder(seed=3, min_crop_area=0.2, flip=True)
READERS = {
    "indexed": InputConfig(),
    "streamed": InputConfig(reader="streamed"),
    "encoded in memory": InputConfig(cache="encoded"),
}
COUNTS = (13, 11, 16)


def original(number: int) -> bytes:
    colour = sorted(COLOURS)[number % 3]
    size = {"height": 60 + 7 * (number % 9), "width": 70 + 40 * (number % 4)}
    return encode(picture(number, colour=colour, **size), "JPEG", quality=90)


FILES = [original(number) for number in range(sum(COUNTS))]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    """40 originals in three shards; the label of each is its number."""
    path: Path = tmp_path_factory.mktemp("originals")
    records = [{ENCODED: file, LABEL_ID: number} for number, file in enumerate(FILES)]
    index = {}
    for number, count in enumerate(COUNTS):
        shard = Path(shard_path(str(path), "train", number, len(COUNTS))).name
        index[shard] = write_indexed_shard(str(path), "train", shard, records[:count])
        records = records[count:]
    write_index(str(path), {"train": index}, labels={})
    return Shards.of_pattern(f"{path}/Split-train/*")


def read(shards: Shards, options: InputConfig, order: TrainingOrder | None) -> tf.data.Dataset:
    return make_dataset(
        shards,
        config=CONFIG,
        feature_spec=FEATURE_SPEC,
        batch_size=BATCH,
        options=options,
        order=order,
    )


@pytest.mark.parametrize("name", READERS)
def test_every_reader_cuts_the_window_of_its_place_in_every_epoch(
    shards: Shards, name: str
) -> None:
    options = READERS[name]
    plan = ReadPlan(shards, CONFIG, FEATURE_SPEC, BATCH, options, ORDER)
    decoder = OriginalDecoder(CONFIG, ORDER)
    batches = list(read(shards, options, ORDER).take(10).as_numpy_iterator())
    for number, (images, labels) in enumerate(batches):
        numbers = plan.draw_windows(tf.constant(number, tf.int64), tf.constant(labels)).numpy()
        expected = decoder.decode([FILES[label] for label in labels], numbers)
        np.testing.assert_array_equal(images, expected)
    for epoch in (batches[:5], batches[5:]):
        assert sorted(np.concatenate([labels for _, labels in epoch])) == list(range(len(FILES)))
    # Other windows in the second epoch, and the same ones of a run that goes on.
    seen: dict[int, set[bytes]] = {}
    for pixels, label in examples(read(shards, options, ORDER).take(10)):
        seen.setdefault(label, set()).add(pixels)
    assert all(len(of) == 2 for of in seen.values())
    rest = read(shards, options, dataclasses.replace(ORDER, start=7)).take(3)
    for (images, labels), (again, ids) in zip(batches[7:], rest.as_numpy_iterator(), strict=True):
        np.testing.assert_array_equal(images, again)
        np.testing.assert_array_equal(labels, ids)


@pytest.mark.parametrize("name", ["indexed", "streamed"])
def test_without_an_order_images_are_those_of_the_served_model(shards: Shards, name: str) -> None:
    batches = list(read(shards, READERS[name], None).as_numpy_iterator())
    expected = decode(canonicalize(tf.constant(FILES), CONFIG), CONFIG)
    np.testing.assert_array_equal(np.concatenate([images for images, _ in batches]), expected)


@pytest.mark.parametrize("cache", ["decoded", "file"])
def test_pixels_are_not_kept(shards: Shards, cache: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"input.cache is '{cache}'.*every epoch cuts"):
        read(shards, InputConfig(cache=cache), ORDER)


def test_the_report_shows_windows_beside_what_evaluation_sees() -> None:
    choices = TrainerConfig(
        transform=CONFIG, augmentation=AugmentationConfig(shift=0.0, min_crop_area=0.2)
    )
    seen, augmented = preview(FILES, dataclasses.asdict(choices))
    expected = decode(canonicalize(tf.constant(FILES), CONFIG), CONFIG)
    np.testing.assert_array_equal(seen, expected)
    assert (seen != augmented).any((1, 2, 3)).sum() > 30
    np.testing.assert_array_equal(augmented, preview(FILES, dataclasses.asdict(choices))[1])

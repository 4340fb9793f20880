from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from components.trainer.config.input import InputConfig
from components.trainer.input import cache, dataset
from tests.trainer.input.shard_folder import ShardFolder, write_shards
from tests.trainer.loop.test_activations import training_input

# No image of label id 2.
LABELS = [0] * 12 + [1] * 3 + [3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ShardFolder:
    path: Path = tmp_path_factory.mktemp("shards")
    return write_shards(path, labels={"train": LABELS}, train=[10, 6], evaluation=[4])


def test_class_weights_are_equal_per_class_and_one_in_the_mean(folder: ShardFolder) -> None:
    weights = training_input(folder, balance="weights").class_weights(5)
    assert weights is not None
    assert weights == pytest.approx([16 / 36, 16 / 9, 0, 16 / 3, 0])
    assert sum(weights[label] for label in LABELS) == pytest.approx(len(LABELS))
    assert training_input(folder, balance="none").class_weights(5) is None


def test_phases_and_trainings_read_images_into_memory_once(
    folder: ShardFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then there is no memory left for them a second time, which is no reason to refuse."""
    calls: list[Any] = []
    read_into_memory = cache.cache_pixels

    def count(*arguments: Any) -> Any:
        calls.append(arguments)
        monkeypatch.setattr(cache, "available_memory", lambda: 0)
        return read_into_memory(*arguments)

    monkeypatch.setattr(dataset, "cache_pixels", count)
    plain = training_input(folder)
    plain = replace(plain, config=replace(plain.config, input=InputConfig(cache="decoded")))

    def read(data: Any) -> list[Any]:
        batches = [*data.read_evaluation().as_numpy_iterator()]
        assert len(next(data.read(0, tf.distribute.InputContext()).as_numpy_iterator())[0]) > 0
        return [label for _, labels in batches for label in labels]

    assert read(plain) == read(replace(plain))
    assert len(calls) == 2

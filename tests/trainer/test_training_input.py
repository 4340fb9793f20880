from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from components.trainer.config.input import InputConfig
from components.trainer.input.cache import cache_pixels
from tests.trainer.input.shard_folder import ShardFolder, write_shards
from tests.trainer.loop.test_feature_cache import training_input

# No image of label id 2.
LABELS = [0] * 12 + [1] * 3 + [3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ShardFolder:
    path: Path = tmp_path_factory.mktemp("shards")
    return write_shards(path, labels={"train": LABELS}, train=[10, 6], evaluation=[4])


def test_class_weights_are_equal_per_class_and_one_in_the_mean(
    folder: ShardFolder,
) -> None:
    weights = training_input(folder, balance="weights").class_weights(5)
    assert weights is not None
    assert weights == pytest.approx([16 / 36, 16 / 9, 0, 16 / 3, 0])
    assert sum(weights[label] for label in LABELS) == pytest.approx(len(LABELS))


@pytest.mark.parametrize("balance", ["none", "sampling"])
def test_no_class_weights_by_default(folder: ShardFolder, balance: Any) -> None:
    assert training_input(folder, balance=balance).class_weights(5) is None


@pytest.mark.slow
def test_trainings_that_share_pixels_decode_them_once(
    folder: ShardFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[str] = []

    def count(images: Any, shards: Any, *rest: Any) -> Any:
        decoded.append(shards.split)
        return cache_pixels(images, shards, *rest)

    monkeypatch.setattr("components.trainer.input.dataset.cache_pixels", count)
    plain = training_input(folder)
    plain = replace(plain, config=replace(plain.config, input=InputConfig(cache="decoded")))
    shared = replace(plain, kept={})

    def read(data: Any) -> list[Any]:
        batches = [*data.read_evaluation().as_numpy_iterator()]
        assert len(next(data.read(0, tf.distribute.InputContext()).as_numpy_iterator())[0]) > 0
        return [label for _, labels in batches for label in labels]

    first, second, alone = read(shared), read(replace(shared)), read(plain)
    assert first == second == alone
    assert sorted(decoded) == ["eval", "eval", "train", "train"]

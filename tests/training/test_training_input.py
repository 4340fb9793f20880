from pathlib import Path
from typing import Any

import pytest

from tests.data.shard_folder import ShardFolder, write_shards
from tests.training.test_feature_cache import training_input

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

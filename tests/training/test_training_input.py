from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from components.transform.config import TransformConfig
from pipeline_def.config.input import InputConfig
from pipeline_def.config.training import TrainerConfig, TrainingConfig
from pipeline_def.training.training_input import TrainingInput
from tests.data.shard_folder import FEATURE_SPEC, SIZE, ShardFolder, write_shards

# No image of label id 2.
LABELS = [0] * 12 + [1] * 3 + [3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ShardFolder:
    path: Path = tmp_path_factory.mktemp("shards")
    return write_shards(path, labels={"train": LABELS}, train=[10, 6], evaluation=[4])


def find(folder: ShardFolder, **training: Any) -> TrainingInput:
    files = SimpleNamespace(
        train_files=[f"{folder.path}/Split-train/*"], eval_files=[f"{folder.path}/Split-eval/*"]
    )
    config = TrainerConfig(
        transform=TransformConfig(size=SIZE),
        input=InputConfig(cache="none"),
        training=TrainingConfig(batch_size=8, **training),
    )
    return TrainingInput.find(files, config, FEATURE_SPEC, replicas=1)


def test_class_weights_are_equal_per_class_and_one_in_the_mean(
    folder: ShardFolder,
) -> None:
    weights = find(folder, balance="weights").class_weights(5)
    assert weights is not None
    assert weights == pytest.approx([16 / 36, 16 / 9, 0, 16 / 3, 0])
    assert sum(weights[label] for label in LABELS) == pytest.approx(len(LABELS))


@pytest.mark.parametrize("balance", ["none", "sampling"])
def test_no_class_weights_by_default(folder: ShardFolder, balance: Any) -> None:
    assert find(folder, balance=balance).class_weights(5) is None

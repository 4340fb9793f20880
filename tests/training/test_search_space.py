"""What a search tries, how many trials fit, and which trial it chooses."""

from dataclasses import replace
from typing import Any

import pytest

from components.contract.errors import ConfigurationError
from components.transform.config import TransformConfig
from pipeline_def.config.config import Config
from pipeline_def.config.model import ModelConfig
from pipeline_def.config.recipes import apply_values, resolve
from pipeline_def.config.training import TrainerConfig, TrainingConfig
from pipeline_def.training.search.halving import RUNGS, count_trials, epochs_at
from pipeline_def.training.search.space import draw_trials, find_space, list_changes


def config(**training: Any) -> TrainerConfig:
    made = TrainerConfig(
        transform=TransformConfig(size=32),
        model=ModelConfig(name="resnet9", weights="none"),
        training=TrainingConfig(minutes=5, **training),
    )
    return resolve(made, shorter_side=32, images=3000)[0]


def test_the_space_surrounds_the_recipe() -> None:
    space = find_space(config())
    assert next(iter(space)) == "training.learning_rate"
    assert space["training.learning_rate"].values == [0.067, 0.2, 0.6]
    assert space["training.weight_decay"].values == [0.003, 0.009, 0.027]
    assert space["model.width"].values == [32, 64]
    assert all(one.why.endswith(".") for one in space.values())


def test_the_users_values_are_kept_and_those_to_search_replace_ours() -> None:
    search: dict[str, list[Any]] = {"training.momentum": [0.8, 0.9], "training.epochs": [7]}
    made = Config(
        training=TrainingConfig(minutes=5, learning_rate=0.3, search=search),
        given=["training.learning_rate", "training.minutes", "training.search"],
    )
    resolved, _ = resolve(made, shorter_side=32, images=3000)
    given = resolved.training.search
    assert given == {"training.learning_rate": [0.3], **search}
    drawn = draw_trials(config(search=given), 40)
    assert {values["training.learning_rate"] for values in drawn} == {0.3}
    assert {values["training.momentum"] for values in drawn} == {0.8, 0.9}
    assert {values["training.epochs"] for values in drawn} == {7}


def test_trials_are_different_valid_and_the_same_for_a_seed() -> None:
    plain = config()
    drawn = draw_trials(plain, 30)
    assert len({repr(values) for values in drawn}) == 30
    assert drawn == draw_trials(plain, 30)
    assert drawn != draw_trials(replace(plain, training=replace(plain.training, seed=1)), 30)
    for values in drawn:
        changed = apply_values(plain, values)
        assert changed != plain
        assert apply_values(plain, list_changes(plain, values)) == changed
    one = {key: [choices.values[0]] for key, choices in find_space(plain).items()}
    assert len(draw_trials(config(search=one), 30)) == 1
    # Adam takes no weight decay.
    both = {"training.optimizer": ["adam", "sgd"], "training.weight_decay": [0.0, 0.1]}
    assert not any(
        values["training.optimizer"] == "adam" and values["training.weight_decay"]
        for values in draw_trials(config(search=both), 30)
    )


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ({"training.rate": [1]}, "names 'training.rate', which it cannot change"),
        ({"training.learning_rat": [1]}, "Did you mean 'training.learning_rate'?"),
        ({"training.folds": [5]}, "which it cannot change"),
        ({"ingest.shrink": [5]}, "which it cannot change"),
        ({"training.epochs": []}, "has no value for training.epochs: list at least one"),
        ({"training.epochs": [-1]}, "training.search: training.epochs is -1"),
        ({"model.name": ["resnet"]}, "training.search: model.name is 'resnet'"),
    ],
)
def test_mistakes_in_the_space(search: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Config(training=TrainingConfig(minutes=5, search=search))
    assert message in str(raised.value)


def test_a_search_needs_minutes_one_machine_and_a_cold_start() -> None:
    with pytest.raises(ConfigurationError, match=r"no effect without training.minutes"):
        TrainingConfig(search={"training.epochs": [3]})
    with pytest.raises(ConfigurationError, match="searches on one machine"):
        TrainingConfig(minutes=5, accelerator="workers")
    with pytest.raises(ConfigurationError, match="search first"):
        Config(training=TrainingConfig(minutes=5), model=ModelConfig(warm_start=True))


def test_as_many_trials_as_fit() -> None:
    assert count_trials(149, one=100) == 0
    assert count_trials(150, one=100) == 1
    assert (count_trials(349, one=100), count_trials(351, one=100)) == (8, 9)
    # A run takes 40 s before its first epoch: 9 × (40 + 10) + 3 × (40 + 20) + 40 + 60.
    assert count_trials(729, one=100, start_up=40) == 8
    assert count_trials(731, one=100, start_up=40) == 9
    counts = [count_trials(seconds, one=100) for seconds in range(0, 3000, 100)]
    assert counts == sorted(counts)
    assert count_trials(1e9, one=1) == 60
    # Without rungs each trial is a whole training.
    assert count_trials(300, one=100, rungs=(1.0,)) == 2
    assert [epochs_at(rung, 4) for rung in RUNGS] == [1, 1, 4]

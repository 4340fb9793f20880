"""What a search tries, and which trials it proposes."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.distributions import CategoricalDistribution

from components.contract.errors import ConfigurationError
from components.images.options import TransformConfig
from components.trainer.config.model import ModelConfig
from components.trainer.config.recipes import apply_values, resolve
from components.trainer.config.training import TrainerConfig, TrainingConfig, TransferConfig
from components.tuner.study import Study, find_space, find_start, list_changes
from components.tuner.trials import Trial
from pipeline_def.config.config import Config


def config(**training: Any) -> TrainerConfig:
    unresolved = TrainerConfig(
        transform=TransformConfig(size=32),
        model=ModelConfig(name="resnet9", weights="none"),
        training=TrainingConfig(minutes=5, **training),
    )
    return resolve(unresolved, shorter_side=32, images=3000)[0]


def begin(plain: TrainerConfig) -> dict[str, Any]:
    return find_start(plain, images=3000)


Draw = Callable[..., list[Trial]]


@pytest.fixture
def draw(tmp_path: Path) -> Draw:
    """A function that proposes trials, each complete with a score, after the recipe's."""
    folders = map(str, itertools.count())

    def draw(
        plain: TrainerConfig, count: int, score: Callable[[dict[str, Any]], float] = lambda _: 0.5
    ) -> list[Trial]:
        study = Study(plain, find_space(plain, begin(plain)), str(tmp_path / next(folders)))
        trial: Trial | None = study.begin(Trial(0, {}, "recipe"))
        while trial:
            trial.complete(["1"])
            trial.score = score(trial.values)
            study.end(trial)
            enough = len(study.trials) > count
            trial = None if enough else study.propose(accept=lambda _: True)
        return study.trials[1:]

    return draw


def values_of(plain: TrainerConfig) -> dict[str, list[Any]]:
    """Return option → values of a choice, or ends of a range."""
    return {
        option: [*one.choices] if isinstance(one, CategoricalDistribution) else [one.low, one.high]  # type: ignore[attr-defined]
        for option, one in find_space(plain, begin(plain)).items()
    }


def test_the_space_surrounds_the_first_trial() -> None:
    plain = config()
    space = values_of(plain)
    assert space["training.learning_rate"] == [0.067, 0.6]
    assert space["training.weight_decay"] == [0.01, 0.09]
    assert space["training.batch_size"] == [64, 128]
    assert "training.balance" not in space
    rare = config(metric="balanced_accuracy")
    assert values_of(rare)["training.balance"] == ["none", "weights"]
    # Proposals learn from the recipe only if it lies inside.
    assert space["model.width"] == [0, 32]
    assert space["training.epochs"] == [40, 80]
    assert space["augmentation.flip"] == [False, True]
    weights = ModelConfig(name="efficientnet_lite0", weights="imagenet")
    pretrained = values_of(replace(plain, model=weights))
    assert pretrained["transfer.unfreeze"] == ["top", "all"]
    assert "transfer.unfreeze" not in begin(replace(plain, model=weights)).keys() | space.keys()
    everything = replace(plain, model=weights, transfer=TransferConfig(unfreeze="all"))
    assert values_of(everything)["transfer.unfreeze"] == ["all"]


def test_the_first_trial_is_what_has_helped_most_but_for_what_the_user_has_set() -> None:
    from_scratch = TrainerConfig(
        model=ModelConfig(weights="none"), training=TrainingConfig(minutes=5)
    )
    few, _ = resolve(from_scratch, shorter_side=32, images=500)
    start = find_start(few, images=500)
    wanted = {"model.name": "resnet9", "augmentation.policy": "trivial", "augmentation.flip": True}
    assert wanted.items() < start.items()
    assert start["training.optimizer"] == "sgd"
    changed = apply_values(few, start)
    assert list_changes(few, start) == start
    assert find_space(few, start)["training.optimizer"] == CategoricalDistribution(["sgd"])
    # Its options only suit each other.
    for fixed in ("training.optimizer", "model.width"):
        restricted = replace(few, training=replace(few.training, fixed=[fixed]))
        options = find_start(restricted, images=500).keys()
        assert not {"model.name", "training.learning_rate"} & options
    # Large images are no digits, and another network is not made slower.
    large = replace(changed, transform=TransformConfig(size=96), model=ModelConfig(name="cnn"))
    assert "augmentation.flip" not in begin(large)
    other = replace(few, model=ModelConfig(name="mobilenet_v2"))
    assert find_start(other, images=500).keys() == {
        "training.epochs",
        "training.keep",
        "augmentation.policy",
        "augmentation.flip",
    }
    # The layers of the user's own network are not ours to change.
    with_build_fn = TrainerConfig(
        model=ModelConfig(build_fn="my.network"), training=TrainingConfig(minutes=5)
    )
    mine, _ = resolve(with_build_fn, shorter_side=32, images=3000)
    assert not {"model.dropout", "model.width"} & find_space(mine, begin(mine)).keys()
    # A recipe that the user has set is for its network.
    given = ["training.recipe", "training.minutes"]
    asked = Config(training=TrainingConfig(minutes=5, recipe="small"), given=given)
    recipe, _ = resolve(asked, shorter_side=32, images=500)
    assert recipe.training.fixed == ["model.name"]


def test_the_users_values_are_kept(draw: Draw) -> None:
    given = Config(
        training=TrainingConfig(minutes=5, learning_rate=0.3, fixed=["augmentation.flip"]),
        given=["training.learning_rate", "training.minutes", "training.fixed"],
    )
    resolved, _ = resolve(given, shorter_side=32, images=3000)
    fixed = resolved.training.fixed
    assert fixed == ["augmentation.flip", "training.learning_rate"]
    plain = config(fixed=[*fixed, "training.epochs"])
    drawn = [apply_values(plain, trial.values) for trial in draw(plain, 6)]
    assert {changed.training.learning_rate for changed in drawn} == {plain.training.learning_rate}
    assert {changed.training.epochs for changed in drawn} == {plain.training.epochs}
    assert {changed.augmentation.flip for changed in drawn} == {plain.augmentation.flip}


def test_trials_are_different_valid_and_the_same_for_a_seed(draw: Draw, tmp_path: Path) -> None:
    plain = config()
    drawn = [trial.values for trial in draw(plain, 6)]
    assert len({repr(values) for values in drawn}) == 6
    assert drawn == [trial.values for trial in draw(plain, 6)]
    other = replace(plain, training=replace(plain.training, seed=1))
    assert drawn != [trial.values for trial in draw(other, 6)]
    for values in drawn:
        changed = apply_values(plain, values)
        assert changed != plain
        assert apply_values(plain, list_changes(plain, values)) == changed
    study = Study(plain, find_space(plain, begin(plain)), str(tmp_path / "none"))
    study.end(study.begin(Trial(0, {}, "recipe")))
    assert study.propose(accept=lambda _: False) is None


def test_proposals_learn_from_the_trials(draw: Draw) -> None:
    def score(values: dict[str, Any]) -> float:
        return 0.9 if values.get("training.epochs", 40) <= 40 else 0.5

    later = draw(config(), 20, score)[12:]
    short_ones = sum(trial.values.get("training.epochs", 40) <= 40 for trial in later)
    # At random it would be four.
    assert short_ones >= 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fixed": ["training.learning_rat"]}, r"Did you mean 'training.learning_rate'\?"),
        ({"fixed": ["training.folds"]}, "which no search changes"),
        ({"accelerator": "workers"}, "searches on one machine"),
    ],
)
def test_mistakes_in_the_options_of_a_search(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        TrainingConfig(minutes=5, **options)

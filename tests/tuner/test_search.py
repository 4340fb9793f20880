"""A search within a time: which trials run, what survives a kill, and what is chosen."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import yaml

from components.contract.errors import ModelError
from components.contract.model_files import BEST_FILE
from components.trainer.config.model import ModelConfig
from components.trainer.config.training import TrainerConfig
from components.trainer.loop.folds import FoldResult, Validated
from components.trainer.training_input import TrainingInput
from components.tuner.choice import choose, compare, write_best
from components.tuner.search import Search, search
from components.tuner.study import find_start
from components.tuner.trials import Report, Trial, TrialRunner
from tests.tuner.test_search_space import config


def make(
    directory: Path,
    *,
    seconds: float,
    folds: int = 0,
    model: ModelConfig | None = None,
    **training: Any,
) -> Search:
    plain = config(**training)
    data: Any = SimpleNamespace(config=replace(plain, model=model or plain.model))
    start = find_start(data.config, images=3000)
    nothing: Any = None
    runner = TrialRunner(data, nothing, nothing, folds, "", str(directory))
    return Search(runner, seconds, start)


def searched(directory: Path, *, seconds: float, epochs: int = 30, **options: Any) -> Search:
    """Return a search that has run."""
    run = make(directory, seconds=seconds, epochs=epochs, **options)
    run.run()
    return run


def chosen_of(run: Search) -> tuple[Trial, str]:
    return choose(run.trials, seconds=run.seconds, folds=run.runner.folds)


class Killed(BaseException):
    """What no code under test catches."""


Accuracy = Callable[[Trial], float | None]


def simulate(
    monkeypatch: pytest.MonkeyPatch, accuracy: Accuracy, *, slow: int = 1
) -> list[tuple[int, int]]:
    """Replace training: an epoch takes a second; return (trial, epochs) of each run.

    Of another width or all layers, it takes `slow` seconds. `accuracy` is asked after each epoch.
    Checkpoints are written to the folder of the trial.
    """
    clock, runs = [0.0], []

    def train(self: TrialRunner, trial: Trial, report: Report, *, note: str) -> None:
        whole = self.config(trial).training.epochs
        cost = slow if {"model.width", "transfer.unfreeze"} & trial.values.keys() else 1
        checkpoint = Path(self.folder(trial), "epochs")
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        done = before = int(checkpoint.read_text()) if checkpoint.exists() else 0
        try:
            while done < whole:
                clock[0] += cost
                trial.epochs = done + 1
                if (score := accuracy(trial)) is None:
                    raise ModelError("Training diverged.")
                done += 1
                trial.go_on(score, done, total=whole)
                if report(trial):
                    return
        finally:
            checkpoint.write_text(str(done))
            runs.append((trial.number, done - before))
        hits = round(1000 * trial.score)
        trial.complete(["1" * hits + "0" * (1000 - hits)])

    monkeypatch.setattr(TrialRunner, "train", train)
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    return runs


def rising(trial: Trial) -> float:
    """The accuracy of each trial is between 0.7 and 0.8."""
    return 0.7 + 0.01 * (7 * trial.number % 11)


def test_the_recipe_comes_first_and_the_best_is_trained_for_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = simulate(monkeypatch, rising)
    run = searched(tmp_path, seconds=600)
    # The recipe, then what has helped elsewhere, whole.
    assert runs[:2] == [(0, 30), (1, 60)]
    assert run.trials[1].values == run.start
    assert run.left >= 0
    complete = [trial for trial in run.trials if trial.state == "complete"]
    stopped = [trial for trial in run.trials if trial.state == "stopped early"]
    assert len(complete) + len(stopped) == len(run.trials)
    assert len(complete) > 3
    chosen, text = chosen_of(run)
    assert chosen == max(complete, key=lambda trial: trial.score)
    assert f"Trial {chosen.number} is better than the recipe, beyond what chance" in text
    [longer] = (trial for trial in run.trials if trial.role == "longer")
    earlier = [trial for trial in complete if trial.number < longer.number]
    best = max(earlier, key=lambda trial: trial.score)
    assert longer.epochs >= 1.5 * best.epochs
    assert longer.values == {**best.values, "training.epochs": longer.epochs}
    # A second attempt finds everything done, in fewer minutes, too.
    before = len(runs)
    assert chosen_of(searched(tmp_path, seconds=600)) == (chosen, text)
    assert chosen_of(searched(tmp_path, seconds=100))[0] == chosen
    assert len(runs) == before
    # Only the recipe and the best can be exported.
    kept = {path.name for path in tmp_path.glob("trial-*")}
    assert kept == {f"trial-{number}" for number in {0, chosen.number}}


def test_a_trial_that_is_worse_than_most_is_stopped_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = simulate(monkeypatch, lambda trial: 0.7 if trial.number < 3 else 0.6)
    run = searched(tmp_path, seconds=700)
    proposed = [trial for trial in run.trials[3:] if not trial.role]
    assert {trial.state for trial in proposed} == {"stopped early"}
    for trial in proposed:
        whole = run.runner.config(trial).training.epochs
        # As soon as a third of the epochs has shown it.
        assert 0.3 <= trial.epochs / whole <= 0.4
    assert len(runs) == len(run.trials)


def test_a_short_time_goes_into_a_longer_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = simulate(monkeypatch, lambda trial: 0.7 + 0.01 * trial.number)
    run = searched(tmp_path, seconds=200)
    assert runs == [(0, 30), (1, 60), (2, 110)]
    assert run.left == 0
    assert run.trials[2].values == {**run.start, "training.epochs": 110}
    assert chosen_of(run)[0].number == 2
    # What has helped elsewhere is shortened if its first epochs show that it takes too long.
    del runs[:]
    run = searched(tmp_path / "shorter", seconds=80)
    assert runs == [(0, 30), (1, 4), (2, 46)]
    assert [trial.state for trial in run.trials] == ["complete", "out of time", "complete"]
    # Its length is the user's, or there is not enough time for it.
    run = searched(tmp_path / "set", seconds=200, fixed=["training.epochs"])
    assert not any(trial.role == "longer" for trial in run.trials)
    del runs[:]
    searched(tmp_path / "short", seconds=39)
    assert runs == [(0, 30)]


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1, 2, 4])
def test_a_search_that_was_killed_in_a_trial_goes_on(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(trial: Trial) -> float:
        if trial.number == number and trial.epochs == 12:
            raise Killed
        return rising(trial)

    simulate(monkeypatch, rising)
    whole = searched(tmp_path / "whole", seconds=500)
    simulate(monkeypatch, killed)
    with pytest.raises(Killed):
        searched(tmp_path / "killed", seconds=500)
    runs = simulate(monkeypatch, rising)
    again = make(tmp_path / "killed", seconds=500, epochs=30)
    assert again.left == pytest.approx(500 - sum(ours.seconds for ours in again.trials))
    again.run()
    # The trial goes on from its checkpoint, 11 epochs, which were charged but for a tenth.
    assert runs[0] == (number, whole.trials[number].epochs - 11)
    assert [ours.number for ours in again.trials] == [*range(len(again.trials))]
    # The last two depend on the time that is left.
    count = min(len(again.trials), len(whole.trials)) - 2
    for ours, other in zip(again.trials[:count], whole.trials[:count], strict=True):
        assert (ours.values, ours.score, ours.state) == (other.values, other.score, other.state)
    assert whole.trials[number].seconds - again.trials[number].seconds <= 6


def test_the_recipe_stays_unless_a_trial_is_better_beyond_chance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(monkeypatch, lambda trial: 0.7 if trial.number == 0 else 0.701)
    run = searched(tmp_path, seconds=400)
    chosen, text = chosen_of(run)
    assert chosen.number == 0
    assert "None is better than the recipe beyond what chance gives" in text
    gain, error = compare(["1110"], ["1110"])
    assert gain == 0 < error
    # A balanced score weighs classes alike, whatever their numbers of images.
    gain, error = compare(["1" * 98, "00"], ["1" * 98, "11"])
    assert (gain, error) == (-0.25, 0.2166)


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("trials", [1, 3, 8, 20])
def test_noise_hardly_ever_replaces_the_recipe(trials: int, balanced: bool) -> None:
    """The choice by simulation: equal trainings, and one that is truly better."""
    generator = np.random.default_rng(0)

    def draw(number: int, accuracy: float) -> Trial:
        trial = Trial(number, {"model.width": number}, seconds=1.0)
        right = "".join(np.where(generator.random(300) < accuracy, "1", "0"))
        trial.complete([right[:20], right[20:]] if balanced else [right])
        return trial

    def count(better: float) -> int:
        accuracies = [0.8] * trials + [better]
        searches = (
            [draw(number, accuracy) for number, accuracy in enumerate(accuracies)]
            for _ in range(300)
        )
        return sum(choose(drawn, seconds=9, folds=0)[0].number > 0 for drawn in searches)

    # 5 % of 300, and two standard deviations.
    assert count(0.8) <= 15 + 7
    assert balanced or count(0.95) > 280


@pytest.mark.slow
def test_too_few_minutes_no_mistakes_and_trials_that_diverge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(monkeypatch, lambda _: 0.7)
    short = searched(tmp_path / "short", seconds=60, epochs=50)
    chosen, text = chosen_of(short)
    assert chosen.number == 0
    assert "training.minutes is 1, too few to train a single trial" in text
    assert "took 0.8 minutes, so a search takes at least 2" in text
    runs = simulate(monkeypatch, lambda _: 1.0)
    perfect = searched(tmp_path / "perfect", seconds=600, epochs=50)
    assert runs == [(0, 50)]
    assert "would not beat the recipe beyond chance" in chosen_of(perfect)[1]
    simulate(monkeypatch, lambda trial: None if trial.number % 2 else 0.7)
    diverging = searched(tmp_path / "diverging", seconds=600, epochs=50)
    assert {trial.state for trial in diverging.trials if trial.number % 2} == {"diverged"}
    assert chosen_of(diverging)[0].state == "complete"
    simulate(monkeypatch, lambda trial: None if trial.number else 0.7)
    failing = searched(tmp_path / "failing", seconds=300, epochs=50)
    said = chosen_of(failing)[1]
    assert "0 trained to the end. The recipe stays." in said
    assert re.match(r"Searched for \d\.\d of 5 minutes: ", said)
    simulate(monkeypatch, lambda _: None)
    with pytest.raises(ModelError, match=r"The recipe's training failed \(diverged\)"):
        searched(tmp_path / "none", seconds=600, epochs=50)


def test_a_search_without_images_to_compare(tmp_path: Path) -> None:
    data: Any = SimpleNamespace(
        config=replace(config(folds=0), model=ModelConfig(name="cnn")),
        evaluation=SimpleNamespace(total=0),
    )
    with pytest.raises(ModelError, match="the eval split, which has no images"):
        search(
            data,
            lambda _: None,
            tf.distribute.get_strategy(),
            folds=0,
            log_dir="",
            checkpoint_dir=str(tmp_path),
        )


def test_the_file_of_the_winner_names_what_its_values_would_change(tmp_path: Path) -> None:
    def write(plain: TrainerConfig, values: dict[str, Any], folds: int) -> Any:
        write_best(plain, values, folds=folds, directory=str(tmp_path), text="It is best: yes.")
        return yaml.safe_load((tmp_path / BEST_FILE).read_text())

    # The time that folds take decides about them, and networks have image sizes of their own.
    longer = {"training.epochs": 80}
    assert write(config(), longer, 5) == {"training": {"epochs": 80, "folds": 5}}
    assert write(config(), {}, 5) is None
    named = write(config(folds=0), {"model.name": "mobilenet_v2"}, 0)
    assert named == {"model": {"name": "mobilenet_v2"}, "transform": {"size": 32}}


def test_a_network_slower_than_thought_is_stopped_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = simulate(monkeypatch, lambda trial: 0.7 + 0.01 * trial.number, slow=100)
    run = searched(tmp_path, seconds=2000)
    assert runs[:2] == [(0, 30), (1, 60)]
    # Its first epochs show the pace.
    slow = [trial for trial in run.trials if "model.width" in trial.values]
    assert [(trial.epochs, trial.state) for trial in slow[:1]] == [(4, "out of time")]
    assert -run.left <= 0.1 * 2000 + 100
    # What was stopped early is not the best.
    assert chosen_of(run)[0].state == "complete"


def test_folds_compare_the_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate(monkeypatch, lambda trial: 0.7 + 0.01 * trial.number)
    run = searched(tmp_path, seconds=400, folds=5)
    chosen, text = chosen_of(run)
    assert "in cross-validation" in text
    # The training on all images has a quarter of the folds' images.
    assert chosen.role == "longer"
    assert 0 <= run.left - chosen.epochs / 4 < 30


def test_a_trial_that_fails_leaves_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ModelError("Training diverged.")

    runner = make(tmp_path, seconds=400).runner
    shards: Any = SimpleNamespace(total=64)
    runner.data = TrainingInput(shards, shards, {}, runner.data.config, 0)
    runner.strategy = tf.distribute.get_strategy()
    arrays = {"get_weights": list, "set_weights": lambda _: None, "submodules": ()}
    runner.build = lambda _: SimpleNamespace(**arrays)
    monkeypatch.setattr(TrialRunner, "_train_whole", fail)
    with pytest.raises(ModelError):
        runner.train(Trial(1, {"training.learning_rate": 9.0}), lambda _: False)
    assert not runner.built


def test_the_folds_are_parts_of_a_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images: Any = SimpleNamespace(labels=np.zeros(5, np.int64))
    # The third fold is the worst, and the second epoch the best.
    curves = [[0.1, 0.8], [0.1, 0.6], [0.1, 0.1], [0.1, 0.8], [0.1, 0.7]]

    def validate(*_: Any, most: int, **__: Any) -> Validated:
        logits = np.zeros([2, 1, 2], np.float32)
        results = [FoldResult(logits, {"val_accuracy": curve}, 1.0) for curve in curves[:most]]
        return Validated(images, np.arange(5), results, run.data.config)

    monkeypatch.setattr("components.tuner.trials.cross_validate", validate)
    run = make(tmp_path, seconds=400, epochs=30, folds=5, metric="accuracy").runner
    run.__dict__["_small"] = images
    built: Any = SimpleNamespace(model=None, shared=None)
    reports: list[Any] = []

    def report(trial: Trial) -> bool:
        reports.append((trial.score, len(trial.scores), trial.epochs))
        return trial.number == 2 and trial.epochs == 12

    trial, stopped = Trial(1, {}), Trial(2, {})
    run._train_folds(trial, built, run.data, "", report)
    assert [epochs for _, _, epochs in reports] == [6, 12, 18, 24]
    assert reports[:2] == [(0.8, 2, 6), (pytest.approx(0.7), 4, 12)]
    # All images are of the first class, and so are the predictions.
    assert (trial.score, trial.epochs, trial.state) == (1.0, 30, "complete")
    run._train_folds(stopped, built, run.data, "", report)
    assert (stopped.epochs, stopped.right) == (12, [])

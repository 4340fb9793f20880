"""A search within a time: which trials run, what survives a kill, and what is chosen."""

import math
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import yaml
from scipy.special import softmax

from components.contract.errors import ModelError
from components.contract.model_files import BEST_FILE
from pipeline_def.config.augmentation import AugmentationConfig
from pipeline_def.config.model import ModelConfig
from pipeline_def.config.training import TrainerConfig
from pipeline_def.serving.signatures import Classifier
from pipeline_def.training.checkpoint import Progress
from pipeline_def.training.cross_validation.folds import FoldResult, Validated, fold_path
from pipeline_def.training.ensemble import join_members
from pipeline_def.training.search.choice import choose, write_best
from pipeline_def.training.search.ensemble import find_ensemble, select
from pipeline_def.training.search.schedule import compare
from pipeline_def.training.search.search import _Search, search
from pipeline_def.training.search.space import FLIP, find_start
from pipeline_def.training.search.study import RUNGS, epochs_at
from pipeline_def.training.search.trials import Trial, TrialRunner, _compare_mirrored
from pipeline_def.training.training_input import TrainingInput
from tests.training.test_search_space import config


def make(
    directory: Path, *, seconds: float, folds: int = 0, images: int = 3000, **training: Any
) -> _Search:
    train = SimpleNamespace(total=images)
    data: Any = SimpleNamespace(config=config(**training), train=train)
    start = find_start(data.config, images=3000, bfloat16=False)
    nothing: Any = None
    runner = TrialRunner(data, nothing, nothing, folds, "", str(directory))
    return _Search.resume(runner, seconds, start)


class Killed(BaseException):
    """What no code under test catches."""


def simulate(monkeypatch: pytest.MonkeyPatch, accuracy: Any, *, slow: int = 1) -> list[Any]:
    """Replace training: an epoch takes a second; return (trial, epochs) of each run.

    Of another width, it takes `slow` seconds.
    """
    clock, runs = [0.0], []

    def train(self: TrialRunner, trial: Trial, rung: float, *, note: str, deadline: float) -> None:
        full = self.config(trial).training.epochs
        cost = slow if "model.width" in trial.values else 1
        in_time = max(1, math.ceil((min(deadline, 1e9) - clock[0]) / cost))
        epochs = min(epochs_at(rung, full), trial.epochs + in_time)
        clock[0] += cost * (epochs - trial.epochs)
        runs.append((trial.number, epochs))
        if (found := accuracy(trial)) is None:
            raise ModelError("Training diverged.")
        trial.epochs, trial.score = epochs, found
        trial.scores = [found] * sum(epochs_at(one, full) <= epochs for one in RUNGS)
        trial.right = ["1" * round(1000 * found) + "0" * round(1000 - 1000 * found)]
        trial.state = "complete" if epochs == full else "paused"

    monkeypatch.setattr(TrialRunner, "train", train)
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    return runs


@pytest.mark.slow
def test_the_best_trials_go_on_and_a_better_one_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = simulate(monkeypatch, lambda trial: 0.7 + 0.01 * (7 * trial.number % 11))
    run = make(tmp_path, seconds=440, epochs=30)
    run.run()
    # The recipe, then what has helped elsewhere, whole.
    assert runs[:3] == [(0, 30), (1, 7), (1, 60)]
    assert run.trials[1].values == run.start
    assert run.left >= 0
    others = [trial for trial in run.trials if not trial.role]
    first_rung = [(trial.number, epochs) for trial in others for epochs in (3, 7)]
    assert sum(map(runs.count, first_rung)) == len(others)
    complete = [trial for trial in run.trials if trial.state == "complete"]
    assert len(run.trials) > len(complete) > 2
    chosen, text = choose(run)
    assert chosen == max(complete, key=lambda trial: trial.score)
    # The best is trained for longer with the time that is left.
    [longer] = (trial for trial in run.trials if trial.role == "longer")
    earlier = (trial for trial in complete if trial.finished < longer.finished)
    best = max(earlier, key=lambda trial: trial.score)
    assert longer.epochs >= 1.5 * best.epochs
    assert longer.values == {**best.values, "training.epochs": longer.epochs}
    assert f"Trial {chosen.number} is better than the recipe: +0." in text
    assert not {trial.state for trial in run.trials} - {"complete", "paused"}
    # A second attempt finds everything done.
    again = make(tmp_path, seconds=440, epochs=30)
    before = len(runs)
    again.run()
    assert len(runs) == before
    assert choose(again) == (chosen, text)


def test_a_short_time_goes_into_a_single_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = simulate(monkeypatch, lambda trial: 0.7 + 0.01 * trial.number)
    run = make(tmp_path, seconds=200, epochs=30)
    run.run()
    # The first epochs show the pace.
    assert runs == [(0, 30), (1, 7), (2, 163)]
    assert run.left == 0
    assert run.trials[2].values == {**run.start, "training.epochs": 163}
    assert choose(run)[0].number == 2
    # With few images, more time does.
    del runs[:]
    make(tmp_path / "few", seconds=1000, epochs=30, images=500).run()
    assert runs[:3] == [(0, 30), (1, 7), (2, 800)]
    # Its length is the user's, or there is not enough time for it.
    run = make(tmp_path / "set", seconds=200, epochs=30, search={"training.epochs": [40]})
    run.run()
    assert not any(trial.role == "longer" for trial in run.trials)
    del runs[:]
    make(tmp_path / "short", seconds=39, epochs=30).run()
    assert runs == [(0, 30)]


@pytest.mark.slow
def test_a_killed_search_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def whole(folder: Path) -> Any:
        simulate(monkeypatch, lambda trial: 0.7 + 0.01 * (trial.number % 3))
        run = make(folder, seconds=200, epochs=30)
        run.run()
        return run.trials

    def killed(trial: Trial) -> float:
        if trial.number == 2:
            raise Killed
        return 0.7 + 0.01 * (trial.number % 3)

    expected = whole(tmp_path / "whole")
    runs = simulate(monkeypatch, killed)
    with pytest.raises(Killed):
        make(tmp_path / "killed", seconds=200, epochs=30).run()
    assert [number for number, _ in runs] == [0, 1, 2]
    found = whole(tmp_path / "killed")
    assert [(t.number, t.values, t.epochs) for t in found] == [
        (t.number, t.values, t.epochs) for t in expected
    ]


@pytest.mark.slow
def test_an_interrupt_keeps_the_best_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(trial: Trial) -> float:
        if sum(one.state == "complete" for one in run.trials) > 1:
            signal.raise_signal(signal.SIGINT)
        return 0.7 + 0.004 * trial.number

    simulate(monkeypatch, interrupted)
    run = make(tmp_path, seconds=1000, epochs=30)
    # The handler of the runner, which ends the process, is for the second one.
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run.run()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, handler)
    chosen, text = choose(run)
    assert chosen.number > 0
    assert "You interrupted it. Trial" in text
    assert run.left > 0

    def early(trial: Trial) -> float:
        if trial.number:
            signal.raise_signal(signal.SIGINT)
        return 0.7

    simulate(monkeypatch, early)
    run = make(tmp_path / "early", seconds=1000, epochs=30)
    run.run()
    told = "0 trials, 0 trained to the end. You interrupted it. The recipe stays."
    assert told in choose(run)[1]


@pytest.mark.slow
def test_the_recipe_stays_unless_a_trial_is_better_beyond_chance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(monkeypatch, lambda trial: 0.7 if trial.number == 0 else 0.701)
    run = make(tmp_path, seconds=400, epochs=30)
    run.run()
    chosen, text = choose(run)
    assert (chosen.number, "None is better than the recipe by more than" in text) == (0, True)
    gain, error = compare(["1110"], ["1110"])
    assert gain == 0 < error
    assert compare(["1100"], ["1111"]) == (-0.3333, 0.3043)
    # A balanced score weighs classes alike, whatever their numbers of images.
    gain, error = compare(["1" * 98, "00"], ["1" * 98, "11"])
    assert (gain, error) == (-0.25, 0.2166)


def test_a_trial_whose_steps_are_compiled_is_not_charged_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(monkeypatch, lambda trial: 0.7 + 0.01 * trial.number)
    run = make(tmp_path, seconds=200, epochs=30)
    run.trials = [
        Trial(0, {}, "recipe", "complete", 30, seconds=60, epoch_seconds=1, start_up=30),
        Trial(1, {"model.width": 32}, "", "paused", 10, seconds=80, epoch_seconds=2, scores=[0.1]),
    ]
    assert run.left == 60
    assert not run.fits(run.trials[1])
    built: Any = None
    run.runner.built[
        run.runner._key(Trial(2, {"training.learning_rate": 0.1, "model.width": 32}))
    ] = built
    assert run.fits(run.trials[1])
    assert run.fits(Trial(2, {}), reserve=0)
    assert not run.fits(Trial(2, {}), reserve=1)


def test_epochs_of_a_killed_attempt_are_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resume(_: TrialRunner, trial: Trial, *__: Any, **___: Any) -> None:
        # Its checkpoint had most of them.
        trial.epochs, trial.epoch_seconds = 30, 1.0

    simulate(monkeypatch, None)
    monkeypatch.setattr(TrialRunner, "train", resume)
    run = make(tmp_path, seconds=200, epochs=30)
    run.trials = [Trial(0, {}, "recipe", "complete", 30, seconds=60), Trial(1, {})]
    run.train(run.trials[1], 1.0)
    assert run.left == 200 - 60
    # The checkpoint is that of an earlier attempt.
    run.trials[1], run.resumed = Trial(1, {}), {1}
    run.train(run.trials[1], 1.0)
    assert run.left == 200 - 60 - 30


@pytest.mark.slow
def test_too_few_minutes_no_mistakes_and_trials_that_diverge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(monkeypatch, lambda _: 0.7)
    short = make(tmp_path / "short", seconds=60, epochs=50)
    short.run()
    chosen, text = choose(short)
    assert chosen.number == 0
    assert "training.minutes is 1, too few to train a single trial" in text
    assert "took 0.8 minutes, so a search takes at least 3" in text
    runs = simulate(monkeypatch, lambda _: 1.0)
    perfect = make(tmp_path / "perfect", seconds=600, epochs=50)
    perfect.run()
    assert runs == [(0, 50)]
    assert "would not be better than the recipe's training beyond chance" in choose(perfect)[1]
    simulate(monkeypatch, lambda trial: None if trial.number % 2 else 0.7)
    diverging = make(tmp_path / "diverging", seconds=600, epochs=50)
    diverging.run()
    assert {trial.state for trial in diverging.trials if trial.number % 2} == {"diverged"}
    assert choose(diverging)[0].state == "complete"
    simulate(monkeypatch, lambda trial: None if trial.number else 0.7)
    monkeypatch.setattr("pipeline_def.training.search.schedule._PATIENCE", 2)
    failing = make(tmp_path / "failing", seconds=300, epochs=50)
    failing.run()
    told = "2 trials, 0 trained to the end. It stopped early, as the last ones brought nothing."
    assert told in choose(failing)[1]
    simulate(monkeypatch, lambda _: None)
    with pytest.raises(ModelError, match="The recipe's training diverged"):
        make(tmp_path / "none", seconds=600, epochs=50).run()


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
            minutes=1,
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
    told: list[str] = []
    monkeypatch.setattr("pipeline_def.training.search.search.report_result", told.append)
    run = make(tmp_path, seconds=400, epochs=30, search={"model.width": [128]})
    run.run()
    # Before its first rung, within a tenth of the time and the epoch that this ends in.
    assert runs[-1] == (2, 4)
    assert -run.left <= 40 + 100
    assert (run.trials[-1].state, run.trials[-1].scores) == ("paused", [])
    # What was stopped early is not the best.
    assert "trial 2 paused 0.720, best 0.710, " in told[-1]
    assert choose(run)[0].state == "complete"


def test_folds_compare_the_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate(monkeypatch, lambda trial: 0.7 + 0.01 * trial.number)
    run = make(tmp_path, seconds=400, epochs=30, folds=5)
    run.run()
    chosen, text = choose(run)
    assert "in cross-validation" in text
    # The training on all images has a quarter of the folds' images.
    assert chosen.role == "longer"
    assert 0 <= run.left - chosen.epochs / 4 < 30


def test_a_trial_that_fails_leaves_no_network_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ModelError("Training diverged.")

    runner = make(tmp_path, seconds=400).runner
    shards: Any = SimpleNamespace(total=64)
    runner.data = TrainingInput(shards, shards, {}, runner.data.config, 0)
    runner.strategy = tf.distribute.get_strategy()
    monkeypatch.setattr(TrialRunner, "_train_whole", fail)

    def build(config: ModelConfig) -> Any:
        rates.append(config.dropout)
        arrays = {"get_weights": list, "set_weights": lambda _: None}
        return SimpleNamespace(width=config.width, submodules=[], **arrays)

    rates: list[float] = []
    runner.build = build
    # Networks of one width are built once, whatever their steps are.
    values: list[dict[str, Any]] = [
        {},
        {"model.dropout": 0.2},
        {"augmentation.policy": "trivial"},
        {"model.width": 128},
    ]
    built = [runner._build(Trial(number, of)) for number, of in enumerate(values)]
    assert len(rates) == 2
    assert all(rates)
    assert built[0] is built[1]
    assert built[0].model is built[2].model
    assert built[0].shared.loops is not built[2].shared.loops
    assert built[0].shared.evaluations is built[2].shared.evaluations
    with pytest.raises(ModelError):
        runner.train(Trial(1, {"training.learning_rate": 9.0}), 1.0)
    assert [one.model.width for one in runner.built.values()] == [128]


def test_the_score_of_a_rung(tmp_path: Path) -> None:
    runner, nan = make(tmp_path, seconds=400, metric="loss").runner, float("nan")
    history = {"val_loss": [nan, 2.0, 1.0, 3.0], "val_accuracy": [0.1, 0.5, 0.4, 0.9]}
    progress = Progress("val_loss", history)
    last = config()
    plain = replace(last, training=replace(last.training, keep="best"))
    assert [runner._score(progress, epochs, plain) for epochs in (1, 2, 4)] == [0.1, 0.5, 0.4]
    assert [runner._score(progress, epochs, last) for epochs in (1, 2, 4)] == [0.1, 0.5, 0.9]
    diverged = Progress("val_loss", {"val_loss": [nan], "val_accuracy": [nan]})
    assert runner._score(diverged, 4, last) == 0.0


def test_the_folds_are_the_rungs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images: Any = SimpleNamespace(labels=np.zeros(5, np.int64))
    asked: list[int] = []

    def validate(*_: Any, most: int, **__: Any) -> Validated:
        asked.append(most)
        # The third fold is the worst, and the second epoch the best.
        curves = [[0.1, 0.8], [0.1, 0.6], [0.1, 0.1], [0.1, 0.8], [0.1, 0.7]]
        results = [
            FoldResult(np.zeros([2, 1, 2], np.float32), {"val_accuracy": curve}, 1.0, 0.5)
            for curve in curves[:most]
        ]
        return Validated(images, np.arange(5), results, run.data.config)

    monkeypatch.setattr("pipeline_def.training.search.trials.cross_validate", validate)
    run = make(tmp_path, seconds=400, epochs=30, folds=5, metric="accuracy").runner
    run.__dict__["_small"] = images
    built: Any = SimpleNamespace(model=None, shared=None)
    trial = Trial(1, {})
    found = []
    for rung in RUNGS:
        run._train_folds(trial, built, run.data, "", rung)
        found.append((trial.scores, trial.epochs, trial.state))
    assert asked == [1, 2, 5]
    assert found[0] == ([0.8], 6, "paused")
    assert found[1] == ([0.8, pytest.approx(0.7)], 12, "paused")
    # All images are of the first class, and so are the predictions.
    assert found[2] == ([0.8, pytest.approx(0.7), 1.0], 30, "complete")
    # An epoch is one of each fold.
    assert trial.epoch_seconds == 2.5
    # The network of the last fold judges mirror images, if it is there.
    compared: list[Any] = []
    images.divide = lambda data, judged, replicas: compared.append((judged.tolist(), replicas))
    run.strategy = tf.distribute.get_strategy()
    built.predict = None
    monkeypatch.setattr("pipeline_def.training.search.trials._compare_mirrored", lambda *_: 0.25)
    recipe = Trial(0, {})
    run._train_folds(recipe, built, run.data, "", 1.0)
    assert (compared, recipe.mirrored) == ([([4], 1)], 0.25)
    last = Path(fold_path(run.folder(recipe), 4))
    last.parent.mkdir(parents=True, exist_ok=True)
    last.touch()
    again = Trial(0, {})
    run._train_folds(again, built, run.data, "", 1.0)
    assert (len(compared), again.mirrored) == (1, 1.0)


@pytest.mark.slow
def test_images_whose_mirror_image_is_another_class_are_not_mirrored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_letters(trial: Trial) -> float:
        trial.mirrored = 0.5
        return 0.7

    simulate(monkeypatch, of_letters)
    run = make(tmp_path, seconds=440, epochs=30)
    assert run.start[FLIP]
    run.run()
    assert len(run.trials) > 2
    assert not any(FLIP in trial.values for trial in run.trials)
    # The user may know better.
    allowed = make(tmp_path / "allowed", seconds=440, epochs=30, search={FLIP: [True]})
    allowed.run()
    assert allowed.trials[1].values[FLIP]


def test_mirror_images_are_compared_with_the_images() -> None:
    left = np.zeros([4, 2, 2, 3], np.uint8)
    left[:, :, 0] = 255
    # The first two are bright on the left, one of the others on both sides.
    left[2] = 255
    left[3] = 0
    ids = np.array([1, 1, 1, 0])
    batches = tf.data.Dataset.from_tensors((left, ids))
    data: Any = SimpleNamespace(config=config(), read_evaluation=lambda: batches)

    def predict(images: tf.Tensor) -> tf.Tensor:
        bright = tf.cast(images[:, 0, 0, 0], tf.float32)
        return tf.stack([255 - bright, bright], axis=1)

    logits = predict(left).numpy()
    assert _compare_mirrored(predict, data, logits) == 0.5
    mirrored = replace(data.config, augmentation=AugmentationConfig(flip=True))
    flipped: Any = SimpleNamespace(config=mirrored)
    assert _compare_mirrored(predict, flipped, logits) == 1.0


def test_the_folds_judge_an_ensemble() -> None:
    images: Any = SimpleNamespace(labels=np.array([0, 1]))
    classifier, asked = Classifier(None), []

    def validate(*logits: list[float]) -> Validated:
        curve = {"val_loss": [1.0]}
        found = [FoldResult(np.array([[of]], np.float32), curve, 1.0) for of in logits]
        return Validated(images, np.arange(2), found, config())

    def make_member(number: int, values: Any) -> Any:
        asked.append((number, values))
        return classifier, validate([3, 0], [0, 0])

    values = {"training.epochs": 3}
    members = [{"trial": 2, "count": 1, "values": {}}, {"trial": 0, "count": 3, "values": values}]
    ensemble = {"members": members, "better": False, "text": "Ensemble."}
    found: dict[str, Any] = {"text": "Searched.", "ensemble": ensemble}
    folds = validate([0, 0], [0, 2])
    assert join_members(classifier, folds, found, make_member) == (classifier, folds)
    assert found["text"].endswith(
        " Ensemble., which may be chance: the chosen trial is exported alone."
    )
    found["text"] = "Searched."
    single = {"text": "Searched."}
    assert join_members(classifier, folds, single, make_member) == (classifier, folds)
    assert "No other trial improves it: the chosen trial is exported alone." in single["text"]
    ensemble["better"] = True
    joined, together = join_members(classifier, folds, found, make_member)
    assert asked == [(0, values)]
    assert joined.others == ((classifier, 0.75),)
    assert found["text"] == "Searched. Ensemble.; it is exported."
    assert together is not None
    expected = softmax(folds.logits, 1) / 4 + 3 * softmax([[3, 0], [0, 0]], 1) / 4
    np.testing.assert_allclose(softmax(together.logits, 1), expected, rtol=1e-6)


def test_an_ensemble_is_chosen_and_judged_against_the_chosen_trial(tmp_path: Path) -> None:
    run = make(tmp_path, seconds=400)
    ids = np.arange(200) % 2
    wrong = np.arange(200) % 5 == np.arange(4)[:, np.newaxis]
    run.trials = [Trial(number, {}, seconds=1) for number in range(6)]
    # Mistakes on different images cancel out; the last trial is worse than a guess.
    for trial, at in zip(run.trials, [*wrong, np.full(200, True)], strict=False):
        sure = np.where(np.eye(2)[np.where(at, 1 - ids, ids)], 2.0, -2.0).astype(np.float32)
        run.runner._complete(trial, sure, ids)
    assert [trial.number for trial in run.finalists] == [0, 1, 2, 3]
    run._tidy()
    assert not [*tmp_path.glob("trial-4/*")]
    found = find_ensemble(run, run.trials[3])
    assert found is not None
    assert [one["trial"] for one in found["members"]] == [3, 0, 1]
    assert found["members"][0]["values"]["training.epochs"] == run.plain.training.epochs
    assert found["text"].startswith("Ensemble of trials 0, 1, 3: 1.000, +0.19")
    assert min(found["interval"][0], found["loss_interval"][0]) > 0
    assert found["better"]
    # The chosen trial alone is as good as with others that know no more.
    for trial in run.trials:
        run.runner._complete(trial, sure, ids)
    assert find_ensemble(run, run.trials[0]) is None
    # A trial that knows more is picked again and again, one that is only less sure is not.
    sure, unsure = (np.array([[one, 1 - one]] * 3, np.float32) for one in (0.9, 0.6))
    labels = np.array([0, 0, 1])
    assert select({0: sure, 1: unsure}, labels, first=0) == {0: 1}
    knowing = np.array([[0.6, 0.4], [0.6, 0.4], [0.1, 0.9]], np.float32)
    assert select({0: sure, 1: knowing}, labels, first=0)[1] > 1

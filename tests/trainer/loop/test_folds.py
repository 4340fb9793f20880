"""Cross-validation: the epochs that folds choose, and real folds of a few images."""

import hashlib
import json
import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from components.contract.example import ENCODED, FILENAME, LABEL_ID, SHA256, TEST
from components.contract.model_files import HISTORY_FILE, NETWORK_FILE, TRAINING_FILE
from components.images.options import TransformConfig
from components.metrics.fold_predictions import read_folds
from components.records.shard_files import read_index
from components.trainer import run_fn as trainer
from components.trainer.config.model import ModelConfig
from components.trainer.config.training import TrainerConfig, TrainingConfig, TransferConfig
from components.trainer.loop import fold_images, folds
from components.trainer.loop.fold_images import SmallSet, assign_folds, choose_folds
from components.trainer.loop.folds import FoldResult, Validated, cross_validate
from components.trainer.loop.linear_head import measure
from components.trainer.loop.train import Shared
from components.trainer.networks.networks import build_model
from components.trainer.training_input import TrainingInput
from tests.pictures import COLOURS, encode, picture
from tests.trainer.input.shard_folder import (
    FEATURE_SPEC,
    Graph,
    name_files,
    trainer_arguments,
    write_records,
)
from tests.trainer.loop.test_loop import Killed

SIZE, TRAIN, EVAL = 16, 36, 12
RNG = np.random.default_rng(0)


def result(losses: list[float]) -> FoldResult:
    epochs = len(losses)
    logits = RNG.normal(size=(epochs, 4, 3)).astype(np.float32)
    return FoldResult(logits, {"val_loss": losses, "val_accuracy": [0.5] * epochs}, 1.0)


def validated(results: list[FoldResult], **changes: Any) -> Validated:
    records = [{SHA256: b"%d" % n, LABEL_ID: n % 3} for n in range(4 * len(results))]
    images = SmallSet(records, [str(n) for n in range(len(records))])
    assigned = np.repeat(np.arange(len(results)), 4)
    return Validated(images, assigned, results, replace(TrainerConfig(), **changes))


CURVES = [[3.0, 2, 1, 4], [3.0, 1, 2, 4], [3.0, 2, 1, 4]]


def test_a_fold_has_no_part_in_its_own_epoch() -> None:
    chosen = validated([result(curve) for curve in CURVES])
    assert chosen.choose_epoch() == 3
    before = chosen.epochs
    for fold in range(3):
        others = [result([0.0, 9, 9, 9] if n == fold else curve) for n, curve in enumerate(CURVES)]
        assert validated(others).epochs[fold] == before[fold]
    np.testing.assert_array_equal(chosen.logits[4:8], chosen.results[1].logits[before[1] - 1])


def test_a_fold_that_diverged_ends_the_choice() -> None:
    nan = float("nan")
    whole, diverged = [3.0, 2, 1, 0.5], [3.0, 2, nan, nan]
    chosen = validated([result(whole), result(diverged), result(whole)])
    assert (chosen.choose_epoch(), chosen.epochs) == (2, [2, 4, 2])
    assert chosen.logits.shape == (12, 3)
    training = TrainingConfig(keep="last")
    assert validated([result(whole)] * 3, training=training).choose_epoch() == 4
    assert validated([result(whole), result(diverged)], training=training).choose_epoch() == 2


@pytest.mark.parametrize("better", [True, False])
def test_fine_tuning_must_be_better_than_the_head_beyond_chance(better: bool) -> None:
    random = np.random.default_rng(0)
    results = []
    for _ in range(3):
        logits = random.normal(size=(4, 4, 3)).astype(np.float32)
        scores = {"head": np.zeros(4, np.float32), "fine_tune": np.ones(4, np.float32)}
        results.append(FoldResult(logits, {"val_loss": [4.0, 3, 2, 1]}, 1.0, scores))
    chosen = validated(
        results,
        model=ModelConfig(name="mobilenet_v2", weights="imagenet"),
        training=TrainingConfig(epochs=3, keep="last"),
    )
    if better:
        for fold, result in enumerate(results):
            ids = chosen.images.labels[chosen.assigned == fold]
            result.logits[3] += 5 * np.eye(3)[ids]
    assert chosen.lengths == ({"head": 1, "fine_tune": 3} if better else {"head": 1})
    assert chosen.epochs == [4 if better else 1] * 3
    assert chosen.known_scores("fine_tune").tolist() == [1.0] * 12


def test_a_class_of_one_fold_decides_nothing() -> None:
    weights = ModelConfig(name="mobilenet_v2", weights="imagenet")
    results = [
        replace(result(losses), known_scores={"head": np.ones(4, np.float32)}) for losses in CURVES
    ]
    temperatures, epochs = [], []
    for unknowable in (-20.0, 20.0):
        results[0].logits[1:, 0, 2] = unknowable
        chosen = validated(results, model=weights)
        for number, record in enumerate(chosen.images.records):
            record[LABEL_ID] = number % 2 if number else 2
        assert chosen.learned.tolist() == [False] + [True] * 11
        temperatures.append(chosen.fit_temperature())
        epochs.append((chosen.choose_epoch(), chosen._improves(3, None)))
        known = chosen.known_scores("head")
        assert np.isnan(known[0])
        assert (known[1:] == 1).all()
    assert temperatures[0] == temperatures[1]
    assert epochs[0] == epochs[1]


def test_each_fold_starts_from_the_same_weights_and_is_judged_by_classes_it_learned(
    tmp_path: Path,
) -> None:
    """Also if a search takes one fold after the other."""
    data = read_input(write_images(tmp_path, groups={}), epochs=2)
    images = SmallSet.read(data)
    model = build_model(
        data.config.model, size=SIZE, classes=4, mean=[80.0] * 3, variance=[8e3] * 3
    )
    initial = model.get_weights()
    images.records[0][LABEL_ID] = 3
    for folder, counts in (("whole", [2]), ("parts", [1, 2])):
        for most in counts:
            places = (str(tmp_path), str(tmp_path / folder))
            named: dict[str, Any] = dict(zip(("log_dir", "checkpoint_dir"), places, strict=True))
            done = cross_validate(model, data, images, folds=2, most=most, **named)
            tf.nest.map_structure(np.testing.assert_array_equal, model.get_weights(), initial)
    whole = [FoldResult.load(str(tmp_path / "whole" / f"fold-{fold}.npz")) for fold in range(2)]
    for fold, (one, other) in enumerate(zip(whole, done.results, strict=True)):
        assert one
        np.testing.assert_array_equal(one.logits, other.logits)
        rows = done.assigned == fold
        learned = done.learned[rows]
        values = measure(other.logits[-1][learned], images.labels[rows][learned])
        assert {f"val_{name}": value for name, value in values.items()} == {
            name: curve[-1] for name, curve in other.curves.items()
        }
    assert done.learned.sum() == len(images.labels) - 1


def test_the_scores_of_a_fold_survive_an_interruption(tmp_path: Path) -> None:
    scores = {"head": RNG.normal(size=4).astype(np.float32)}
    kept = replace(result([2.0, 1.0]), known_scores=scores)
    kept.save(str(tmp_path / "fold-0.npz"))
    loaded = FoldResult.load(str(tmp_path / "fold-0.npz"))
    assert loaded is not None
    assert (loaded.curves, loaded.seconds) == (kept.curves, kept.seconds)
    np.testing.assert_array_equal(loaded.known_scores["head"], scores["head"])


def test_the_temperature_of_a_fold_is_that_of_the_others() -> None:
    plain, training = validated([result(curve) for curve in CURVES]), TrainingConfig(calibrate=True)
    calibrated = replace(plain, config=replace(plain.config, training=training))
    before = calibrated.predict(("a", "b", "c")).probabilities
    ids = calibrated.images.labels
    for record in calibrated.images.records[:4]:
        record[LABEL_ID] = (record[LABEL_ID] + 1) % 3
    assert (calibrated.images.labels != ids).any()
    after = calibrated.predict(("a", "b", "c")).probabilities
    np.testing.assert_array_equal(before[:4], after[:4])
    assert (before[4:] != after[4:]).any()


def write_images(folder: Path, **facts: Any) -> Path:
    """Write pictures of three colors, two of which are copies of an image of another split."""
    rows = [*range(TRAIN), 0, *range(TRAIN, TRAIN + EVAL - 1)]
    records = [describe(number) for number in rows]
    splits = {"train": records[:TRAIN], "eval": records[TRAIN:]}
    return write_records(folder, splits, labels={split: {"red": 1} for split in splits}, **facts)


def describe(number: int) -> dict[str, Any]:
    color = list(COLOURS)[number % 3]
    content = encode(picture(number, colour=color, height=SIZE, width=SIZE), "JPEG")
    key = hashlib.sha256(content).hexdigest()
    names = {FILENAME: f"{color}/{number}.jpg".encode(), SHA256: key.encode()}
    return {ENCODED: content, LABEL_ID: number % 3, **names}


def read_input(folder: Path, **training: Any) -> TrainingInput:
    config = TrainerConfig(
        transform=TransformConfig(size=SIZE),
        model=ModelConfig(name="cnn", width=8),
        judged_by_folds=True,
        training=TrainingConfig(batch_size=16, **{"epochs": 3, "folds": 3, **training}),
    )
    files = SimpleNamespace(**name_files(folder))
    return TrainingInput.find(files, config, FEATURE_SPEC, replicas=1)


@pytest.mark.slow
def test_a_fold_learns_from_all_images_but_its_own(tmp_path: Path) -> None:
    keys = [describe(number)[SHA256].decode() for number in range(9, 18)]
    data = read_input(write_images(tmp_path / "images", groups=dict.fromkeys(keys, "a film")))
    images = SmallSet.read(data)
    assert len(images.keys) == TRAIN + EVAL
    assigned = images.assign(3)
    assert assigned[0] == assigned[TRAIN], "copies stay together"
    assert len(set(assigned[9:18].tolist())) == 1, "groups of the manifest, too"
    for fold in range(3):
        [judged] = np.nonzero(assigned == fold)
        part = images.divide(data, judged, replicas=1)
        assert part.evaluation.rows == tuple(judged.tolist())
        assert part.train.rows == tuple(np.flatnonzero(assigned != fold).tolist())
        for shards, rows in ((part.train, assigned != fold), (part.evaluation, judged)):
            batches = [*part.read_in_order(shards)]
            pixels, labels = (np.concatenate(column) for column in zip(*batches, strict=True))
            np.testing.assert_array_equal(labels, images.labels[rows])
            encoded_images = [encoded[ENCODED] for encoded in np.array(images.records)[rows]]
            expected = [decode_pixels(content) for content in encoded_images]
            np.testing.assert_array_equal(pixels, expected)


def decode_pixels(content: bytes) -> Any:
    return tf.io.decode_jpeg(content, channels=3, dct_method="INTEGER_ACCURATE").numpy()


def network() -> tf_keras.Model:
    return tf_keras.Sequential([tf_keras.layers.Input([1])])


def choose(
    folder: Path,
    patch: pytest.MonkeyPatch,
    *,
    facts: Any = MappingProxyType({"groups": {}}),
    splits: Sequence[str] = (),
    work: int = 0,
    changes: Any = MappingProxyType({}),
    **training: Any,
) -> int:
    """Return the number of folds, for an index that may name splits without images, too."""
    index = read_index(str(write_images(folder, **facts)))
    index["splits"] |= {name: {} for name in splits}
    patch.setattr(fold_images, "read_index", lambda _: index)
    patch.setattr(fold_images, "count_multiplications", lambda _: work)
    data = read_input(folder, **{"folds": "auto", **training})
    return choose_folds(replace(data, config=replace(data.config, **changes)), network())


# Nine minutes, fourteen and more than anybody waits for.
LONG, LONGER, LONGEST = 12 * 10**9, 2 * 10**10, 10**12
PAIRS = {describe(n)[SHA256].decode(): str(n % 2) for n in range(TRAIN + EVAL)}
LITE = {"model": ModelConfig(name="efficientnet_lite0", weights="imagenet")}
WHOLE = {**LITE, "transfer": TransferConfig(unfreeze="all")}
EARLIER = {"model": ModelConfig(name="cnn", width=8, weights="backbone.npz")}
CHOICES: dict[str, tuple[dict[str, Any], int, str]] = {
    "none are wanted": ({"folds": 0}, 0, ""),
    "a number": ({"folds": 7, "work": LONGEST}, 7, "for ± 0.14 instead of ± 0.28, by all 48 im"),
    "little work": ({"work": 10**6}, 5, "5 folds: about 1 more minute\n"),
    # Worth it for an interval that is narrower by 0.14, but not if the test split judges.
    "more work": ({"work": LONG}, 5, "about 9 more minutes"),
    "a test split": ({"work": LONG, "splits": [TEST]}, 0, "to train on all 48 images"),
    "too much work": ({"work": LONGEST}, 0, "more minutes, --training.folds 5"),
    "frozen layers": ({"work": LONGEST, "changes": LITE}, 3, ""),
    "all layers": ({"work": LONGEST, "changes": WHOLE}, 0, ""),
    "both": ({"work": LONGEST, "changes": LITE, "splits": [TEST]}, 0, "to train on all 48 images"),
    "a long search": ({"work": LONGER, "minutes": 60}, 5, ""),
    "a short search": ({"work": LONGER, "minutes": 1}, 0, ""),
    "the user's eval split": ({"folds": 3, "facts": {}}, 0, "you have named the eval split"),
    "earlier weights": ({"folds": 2, "changes": EARLIER}, 0, "which may know the images"),
    "pairs": ({"folds": 3, "facts": {"groups": PAIRS}}, 0, "groups and copies leave only 2 sets"),
}


@pytest.mark.parametrize("name", CHOICES)
def test_folds_follow_from_the_gain_and_the_work_not_from_the_clock(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    given, chosen, said = CHOICES[name]
    with caplog.at_level(logging.INFO):
        assert choose(tmp_path, monkeypatch, **given) == chosen
    shown = [record.message for record in caplog.records if record.__dict__.get("lasting")]
    assert said in "\n".join(shown) + "\n"


def test_multiplications_are_counted() -> None:
    image = tf_keras.Input([8, 8, 3], dtype=tf.uint8)
    x = tf_keras.layers.Conv2D(4, 3, padding="same", use_bias=False)(tf.cast(image, tf.float32))
    x = tf_keras.layers.DepthwiseConv2D(3, strides=2, padding="same")(x)
    model = tf_keras.Model(image, tf_keras.layers.Dense(5)(tf_keras.layers.Flatten()(x)))
    expected = 64 * 4 * 27 + 16 * 4 * 9 + 64 * 5
    assert fold_images.count_multiplications(model) == expected


def test_the_last_layer_alone_answers_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = read_input(write_images(tmp_path, groups={}))
    moments: dict[str, Any] = {"mean": [80.0] * 3, "variance": [8000.0] * 3}
    model = build_model(data.config.model, size=SIZE, classes=3, **moments)
    with caplog.at_level(logging.INFO):
        folds._answer_first(model, data, SmallSet.read(data), 3, shared=Shared())
    [said] = [record.message for record in caplog.records if record.__dict__.get("lasting")]
    matched = re.fullmatch(r"first answer: accuracy ([\d.]+) in cross-validation, by the .*", said)
    assert matched
    assert float(matched[1]) > 0.9


def tiny(size: int, classes: int) -> tf_keras.Model:
    """A network that is traced fast."""
    layers = tf_keras.layers
    scaled = layers.Rescaling(1 / 255, input_shape=[size, size, 3])
    return tf_keras.Sequential([scaled, layers.GlobalAveragePooling2D(), layers.Dense(classes)])


def train(folder: Path, target: Path, *, hyperparameters: Any = None, **training: Any) -> Path:
    model = ModelConfig(build_fn=f"{__name__}.tiny")
    plain = read_input(folder, **training).config
    config = replace(plain, model=model, checkpoints=f"{target}/checkpoints")
    arguments = trainer_arguments(config, folder, target) | {"hyperparameters": hyperparameters}
    trainer.run_fn(SimpleNamespace(**arguments))
    return target


@pytest.mark.slow
def test_a_training_with_folds_resumes_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tft, "TFTransformOutput", Graph)
    monkeypatch.setattr(trainer, "export_model", lambda *_, **__: None)
    monkeypatch.setattr(trainer, "write_warmup", lambda *_: None)
    folder = write_images(tmp_path / "images", groups={})
    options: dict[str, Any] = {"calibrate": True, "metric": "accuracy", "folds": 2, "epochs": 2}
    whole = train(folder, tmp_path / "whole", **options)
    trained: list[str] = []
    once = folds._train_fold

    def count(*given: Any, log_dir: str, **places: Any) -> Any:
        trained.append(log_dir)
        if len(trained) == 2:
            raise Killed
        return once(*given, log_dir=log_dir, **places)

    monkeypatch.setattr(folds, "_train_fold", count)
    # What a search has found, by the same images.
    values = {"values": {"training.epochs": 2}}
    with pytest.raises(Killed):
        train(folder, tmp_path / "killed", hyperparameters=values, **options)
    killed = train(folder, tmp_path / "killed", hyperparameters=values, **options)
    assert [name[-1] for name in trained] == ["1", "2", "2"]
    assert not list(killed.glob("checkpoints/*"))
    first, second = (read_folds(str(target / "model")) for target in (whole, killed))
    assert first
    assert second
    networks = (
        json.loads((folder / "model" / NETWORK_FILE).read_text()) for folder in (whole, killed)
    )
    assert [network["picked"] for network in networks] == ["", "the training"]
    np.testing.assert_array_equal(first.probabilities, second.probabilities)
    assert len(first.keys) == TRAIN + EVAL
    facts = json.loads((killed / "run" / TRAINING_FILE).read_text())
    assert facts["folds"]["count"] == 2
    assert facts["temperature"] != 1
    [phase] = facts["phases"]
    assert phase["epochs"] == phase["best_epoch"] <= 2
    history = json.loads((killed / "run" / HISTORY_FILE).read_text())
    assert np.isfinite(history["val_loss"]).all(), "means over the folds"


def digests(count: int) -> list[str]:
    return [hashlib.sha256(str(number).encode()).hexdigest() for number in range(count)]


@pytest.mark.parametrize("folds", [2, 5, 20])
def test_classes_are_divided_evenly(folds: int) -> None:
    labels = np.repeat([0, 1, 2], [70, 55, 35])
    parts = assign_folds(labels, digests(160), folds)
    counts = np.array([np.bincount(parts[labels == label], minlength=folds) for label in range(3)])
    assert np.ptp(counts, axis=1).max() <= 1
    assert np.ptp(counts.sum(axis=0)) <= 2


def test_copies_and_groups_stay_together_in_any_order() -> None:
    groups, labels = digests(40) * 2 + ["film"] * 12, np.arange(92) % 3
    together = assign_folds(labels, groups, 5)
    assert len({*zip(groups, together.tolist(), strict=True)}) == 41
    assert np.ptp(np.bincount(together, minlength=5)) <= 4
    order = np.random.default_rng(0).permutation(92)
    shuffled = assign_folds(labels[order], [groups[row] for row in order], 5)
    np.testing.assert_array_equal(together[order], shuffled)

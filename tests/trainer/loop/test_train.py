import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from PIL import Image
from sklearn.datasets import load_digits

from components.contract.errors import ModelError
from components.contract.example import ENCODED, LABEL_ID
from components.contract.model_files import INPUT_WAIT_FRACTION, RATE
from components.images.options import TransformConfig
from components.records.shard_files import read_index
from components.trainer.config.input import AugmentationConfig, InputConfig
from components.trainer.config.model import ModelConfig
from components.trainer.config.training import TrainerConfig, TrainingConfig, TransferConfig
from components.trainer.loop import activations, train
from components.trainer.loop.linear_head import measure
from components.trainer.loop.train import Mode, Shared, Training
from components.trainer.networks.networks import build_model
from components.trainer.networks.parts import Parts, save_backbone
from components.trainer.training_input import TrainingInput
from tests.pictures import encode
from tests.trainer.input.shard_folder import FEATURE_SPEC, name_files, write_records
from tests.trainer.loop.test_loop import Killed, kill

pytestmark = pytest.mark.slow

SIZE = 16
IMAGES = TransformConfig(size=SIZE)
SMALL = ModelConfig(name="cnn", width=8)
OLD, NEW = range(6), range(6, 10)


def write_digits(folder: Path, classes: Sequence[int], *, each: int) -> Path:
    """Write `each` images of every class to train, and 100 of the others to eval."""
    digits = load_digits()
    random = np.random.default_rng(0)
    of_classes = [random.permutation(np.flatnonzero(digits.target == n)) for n in classes]
    rest = random.permutation(np.concatenate([numbers[each:] for numbers in of_classes]))
    splits = {
        "train": random.permutation(np.concatenate([numbers[:each] for numbers in of_classes])),
        "eval": rest[:100],
    }
    records = {
        split: [record(digits.images[n], classes.index(digits.target[n])) for n in numbers]
        for split, numbers in splits.items()
    }
    return write_records(folder, records, labels={"train": {str(digit): each for digit in classes}})


def record(pixels: Any, label: int) -> dict[str, Any]:
    image = Image.fromarray((pixels / 16 * 255).astype(np.uint8)).convert("RGB")
    large = image.resize((SIZE, SIZE), Image.Resampling.BICUBIC)
    return {ENCODED: encode(large, "JPEG", quality=95), LABEL_ID: label}


class FailingInput(TrainingInput):
    """The input of a training that can be interrupted while it reads images."""

    kill_at: int | None = None

    def read(self, step: int, part: tf.distribute.InputContext) -> tf.data.Dataset:
        return kill(super().read(step, part), step, at=self.kill_at, seen={})


@dataclass
class Case:
    """A training on digits, by default from random weights."""

    digits: Path
    folder: Path
    model: ModelConfig = SMALL
    transfer: TransferConfig = TransferConfig()  # noqa: RUF009 - frozen
    training: TrainingConfig = TrainingConfig(epochs=3)  # noqa: RUF009 - frozen
    kill_at: int | None = None

    def run(self) -> Training:
        tf_keras.utils.set_random_seed(self.training.seed)
        tf.config.experimental.enable_op_determinism()
        config = TrainerConfig(
            transform=IMAGES,
            input=InputConfig(cache="none"),
            augmentation=AugmentationConfig(shift=0.1),
            model=self.model,
            training=self.training,
            transfer=self.transfer,
        )
        files = SimpleNamespace(**name_files(self.digits))
        data = FailingInput.find(files, config, FEATURE_SPEC, replicas=1)
        object.__setattr__(data, "kill_at", self.kill_at)
        classes = len(read_index(str(self.digits))["labels"]["train"])
        training = Training(
            build(self.model, classes, seed=self.training.seed),
            data,
            log_dir=str(self.folder / "logs"),
            checkpoint_dir=str(self.folder / "checkpoints"),
        )
        training.run()
        return training


def build(config: ModelConfig, classes: int, *, seed: int = 0) -> tf_keras.Model:
    moments: dict[str, Any] = {"mean": [80.0] * 3, "variance": [8000.0] * 3}
    return build_model(config, size=SIZE, classes=classes, seed=seed, **moments)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    """A small network trained on six digits."""
    folder = tmp_path_factory.mktemp("pretrained")
    case = Case(write_digits(folder, OLD, each=120), folder, training=TrainingConfig(epochs=10))
    path = str(folder / "backbone.npz")
    save_backbone(case.run().model, path)
    return replace(case.model, weights=path)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of each new class."""
    return write_digits(tmp_path_factory.mktemp("digits"), NEW, each=100)


def test_a_network_that_diverges_is_an_error(digits: Path, tmp_path: Path) -> None:
    training = TrainingConfig(epochs=1, learning_rate=1e38, precision="bfloat16")
    case = Case(digits, tmp_path, training=training)
    with pytest.raises(ModelError) as caught:
        case.run()
    assert str(caught.value) == (
        "Training diverged in epoch 1 of phase train, as the loss was not finite: lower "
        "training.learning_rate, which is 1e+38, or set training.precision to float32."
    )
    assert not list((tmp_path / "checkpoints").iterdir())


def test_class_weights_reach_the_step(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []

    def record(*_: Any, **options: Any) -> None:
        given.append(options["class_weights"])
        raise Killed

    monkeypatch.setattr(TrainingInput, "class_weights", lambda _, classes: [0.5] * classes)
    monkeypatch.setattr(train, "Step", record)
    with pytest.raises(Killed):
        Case(digits, tmp_path).run()
    assert given == [[0.5] * 4]


@pytest.mark.parametrize("keep", ["best", "last"])
def test_trainings_of_other_sizes_share_a_compiled_step(
    digits: Path, tmp_path: Path, keep: Any
) -> None:
    """Folds differ by an image, and so by a step per epoch."""
    training = TrainingConfig(epochs=2, batch_size=32, optimizer="adamw", keep=keep)
    fresh = Case(digits, tmp_path / "fresh", training=training).run()
    [loop] = fresh.shared.loops.values()
    compiled = loop._run
    rows = tuple(range(200))
    part = replace(fresh.data.train, rows=rows)
    smaller = fresh.data.of(part, fresh.data.evaluation, 1)
    assert (fresh.data.steps, smaller.steps) == (12, 6)
    tf_keras.utils.set_random_seed(training.seed)
    initial, results = build(SMALL, 4).get_weights(), []
    recording = Mode(judge=lambda _, logits, ids: measure(logits, ids))
    for number, (data, shared, mode) in enumerate(
        [
            (smaller, fresh.shared, Mode()),
            (fresh.data, fresh.shared, Mode()),
            (smaller, Shared(), Mode()),
            (smaller, Shared(), recording),
        ]
    ):
        model = fresh.model if shared is fresh.shared else build(SMALL, 4)
        model.set_weights(initial)
        places = (str(tmp_path / f"logs{number}"), str(tmp_path / f"{number}"))
        done = Training(model, data, *places, mode=mode, shared=shared)
        done.run()
        results.append((model.get_weights(), done.history))
    assert [loop._run is compiled for loop in fresh.shared.loops.values()] == [True]
    assert compiled._loop.experimental_get_tracing_count() == 1
    reused, again, alone, recorded = results
    tf.nest.map_structure(np.testing.assert_array_equal, reused[0], alone[0])
    for name in ("val_loss", "val_accuracy", "val_balanced_accuracy"):
        assert reused[1][name] == alone[1][name] == pytest.approx(recorded[1][name], rel=1e-5)
        assert again[1][name] == fresh.history[name]


def weights_of(model: tf_keras.Model) -> dict[str, Any]:
    return {v.name: v.numpy() for v in Parts.of(model).backbone.variables}


@pytest.mark.parametrize("budget", [2**31, 0], ids=["activations", "images"])
def test_the_second_phase_leaves_frozen_layers_bit_for_bit(
    pretrained: ModelConfig,
    digits: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    budget: int,
) -> None:
    monkeypatch.setattr(activations, "_BUDGET", budget)
    transfer = TransferConfig(unfreeze=1)
    training = TrainingConfig(epochs=8, learning_rate=3e-3)
    done = Case(digits, tmp_path, pretrained, transfer, training).run()
    assert [phase.name for phase in done.phases] == ["head", "fine_tune"]
    assert done.exported == "fine_tune"
    assert done.phases[1].on_features == bool(budget)
    assert done.history["phase"] == [1, *[2] * 8]
    losses = done.history["val_loss"]
    assert done.phases[1].progress.best == min(losses[1:])
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["fine_tune"]
    before, after = weights_of(build(pretrained, 4)), weights_of(done.model)
    changed = {name for name in before if np.any(before[name] != after[name])}
    last = Parts.of(done.model).blocks[-1]
    normalization = tf_keras.layers.BatchNormalization
    trained = [layer for layer in last if not isinstance(layer, normalization)]
    assert len(trained) < len(last)
    assert changed == {v.name for layer in trained for v in layer.variables}


def test_a_kill_in_the_second_phase_changes_nothing(
    pretrained: ModelConfig, digits: Path, tmp_path: Path
) -> None:
    training = TrainingConfig(epochs=3, checkpoint_steps=2)
    transfer = TransferConfig(unfreeze="all")
    case = Case(digits, tmp_path / "whole", pretrained, transfer, training)
    whole = case.run()
    killed = replace(case, folder=tmp_path / "killed", kill_at=17)
    with pytest.raises(tf.errors.OpError, match="Killed"):
        killed.run()
    again = replace(killed, kill_at=None).run()
    weights = again.model.get_weights(), whole.model.get_weights()
    tf.nest.map_structure(np.testing.assert_array_equal, *weights)
    for name in whole.history.keys() - {RATE, INPUT_WAIT_FRACTION}:
        assert again.history[name] == whole.history[name]


def test_weights_that_fine_tuning_spoils_are_discarded(
    pretrained: ModelConfig, digits: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def spoil(rate: float, epochs: int) -> Training:
        training = TrainingConfig(epochs=epochs, learning_rate=rate, metric="loss")
        folder = tmp_path / str(rate)
        both = Case(digits, folder, pretrained, training=training).run()
        assert both.exported == "head"
        fine_tuning = both.phases[1].progress
        assert (fine_tuning.epochs, fine_tuning.diverged) == (1, rate > 1)
        for name, value in weights_of(build(pretrained, 4)).items():
            np.testing.assert_array_equal(weights_of(both.model)[name], value)
        return both

    with caplog.at_level(logging.WARNING):
        # After a diverged epoch, the accuracy may be higher than the head's.
        worse, diverged = spoil(1.0, 1), spoil(1e38, 2)
    assert "Fine-tuning has not improved the model beyond chance" in caplog.text
    assert (
        "Training diverged in epoch 1 of phase fine_tune, as the loss was not finite: lower "
        "training.learning_rate, which is 1e+38."
    ) in caplog.text
    heads = [Parts.of(both.model).head.get_weights() for both in (worse, diverged)]
    tf.nest.map_structure(np.testing.assert_array_equal, *heads)
    assert worse.answers is not None
    # Those that the first phase was measured by, but for features in float16.
    logits = [worse.model(images) for images, _ in worse.data.read_evaluation()]
    np.testing.assert_allclose(np.concatenate(logits), worse.answers, atol=0.05)

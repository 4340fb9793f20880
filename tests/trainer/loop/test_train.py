import functools
import logging
from collections.abc import Callable, Sequence
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
from components.records.record_index import write_indexed_shard
from components.records.shard_files import read_index, write_index
from components.trainer.config.augmentation import AugmentationConfig
from components.trainer.config.input import InputConfig
from components.trainer.config.model import ModelConfig
from components.trainer.config.training import TrainerConfig, TrainingConfig, TransferConfig
from components.trainer.loop import activations, train
from components.trainer.loop.train import Shared, Training
from components.trainer.networks.networks import build_model
from components.trainer.networks.parts import Parts
from components.trainer.networks.weights import save_backbone
from components.trainer.training_input import TrainingInput
from tests.pictures import encode
from tests.trainer.input.shard_folder import FEATURE_SPEC

SIZE = 16
IMAGES = TransformConfig(size=SIZE)
SMALL = ModelConfig(name="cnn", width=8)
OLD, NEW = range(6), range(6, 10)


class Killed(Exception):
    pass


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
    index = {}
    for split, numbers in splits.items():
        records = [record(digits.images[n], classes.index(digits.target[n])) for n in numbers]
        index[split] = {"one": write_indexed_shard(str(folder), split, "one", records)}
    write_index(str(folder), index, labels={"train": {str(digit): each for digit in classes}})
    return folder


def record(pixels: Any, label: int) -> dict[str, Any]:
    image = Image.fromarray((pixels / 16 * 255).astype(np.uint8)).convert("RGB")
    large = image.resize((SIZE, SIZE), Image.Resampling.BICUBIC)
    return {ENCODED: encode(large, "JPEG", quality=95), LABEL_ID: label}


class FailingInput(TrainingInput):
    """The input of a training that can be interrupted while it reads images."""

    kill_at: int | None = None

    def read(self, step: int, part: tf.distribute.InputContext) -> tf.data.Dataset:
        def listen(number: Any) -> Any:
            if self.kill_at is not None and number >= self.kill_at:
                raise Killed
            return np.int64(0)

        def tap(number: tf.Tensor, batch: tuple[tf.Tensor, ...]) -> Any:
            with tf.control_dependencies([tf.numpy_function(listen, [number], tf.int64)]):
                return tf.identity(batch[0]), *batch[1:]

        return super().read(step, part).enumerate(step).map(tap)


@dataclass
class Case:
    """A training on digits, by default from random weights."""

    digits: Path
    folder: Path
    model: ModelConfig = SMALL
    transfer: TransferConfig = TransferConfig()  # noqa: RUF009 - frozen
    training: TrainingConfig = TrainingConfig(epochs=3)  # noqa: RUF009 - frozen
    kill_at: int | None = None

    def run(self, *, trained: Training | None = None, shared: Shared | None = None) -> Training:
        """Train, with the network of another training if that is given."""
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
        patterns = {f"{s}_files": [f"{self.digits}/Split-{s}/*"] for s in ("train", "eval")}
        data = FailingInput.find(SimpleNamespace(**patterns), config, FEATURE_SPEC, replicas=1)
        object.__setattr__(data, "kill_at", self.kill_at)
        classes = len(read_index(str(self.digits))["labels"]["train"])
        model = build(self.model, classes, seed=self.training.seed)
        if trained:
            trained.model.set_weights(model.get_weights())
            model = trained.model
        training = Training(
            model,
            data,
            shared=shared or Shared(),
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
    path = str(folder / "backbone.weights.h5")
    save_backbone(case.run().model, path)
    return replace(case.model, weights=path)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """From the number of images of each new class to their folder."""

    @functools.cache
    def write(each: int) -> Path:
        return write_digits(tmp_path_factory.mktemp("digits"), NEW, each=each)

    return write


@pytest.mark.slow
def test_a_network_that_diverges_is_an_error(digits: Any, tmp_path: Path) -> None:
    training = TrainingConfig(epochs=1, learning_rate=1e38, precision="bfloat16")
    case = Case(digits(10), tmp_path, training=training)
    with pytest.raises(ModelError) as caught:
        case.run()
    assert str(caught.value) == (
        "Training diverged in epoch 1 of phase train, as the loss was not finite: lower "
        "training.learning_rate, which is 1e+38, or set training.precision to float32."
    )
    assert not list((tmp_path / "checkpoints").iterdir())


@pytest.mark.slow
def test_steps_of_a_network_share_its_evaluation(digits: Any, tmp_path: Path) -> None:
    plain = Case(digits(10), tmp_path / "plain", training=TrainingConfig(epochs=1))
    training = TrainingConfig(epochs=1, label_smoothing=0.1)
    smooth = replace(plain, folder=tmp_path / "smooth", training=training)
    shared = Shared()
    trained = plain.run(shared=shared)
    found = smooth.run(trained=trained, shared=shared)
    one, two = shared.loops.values()
    assert one._evaluate is two._evaluate
    expected = replace(smooth, folder=tmp_path / "alone").run()
    for metric in ("loss", "val_loss", "val_accuracy"):
        assert found.history[metric] == expected.history[metric]


@pytest.mark.slow
def test_class_weights_reach_the_step(
    digits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []

    def record(*_: Any, **options: Any) -> None:
        given.append(options["class_weights"])
        raise Killed

    monkeypatch.setattr(TrainingInput, "class_weights", lambda _, classes: [0.5] * classes)
    monkeypatch.setattr(train, "Step", record)
    with pytest.raises(Killed):
        Case(digits(10), tmp_path).run()
    assert given == [[0.5] * 4]


def weights_by_layer(model: tf_keras.Model) -> dict[str, list[Any]]:
    backbone = Parts.of(model).backbone
    return {v.name: v.numpy() for v in backbone.variables}


@pytest.mark.slow
@pytest.mark.parametrize("budget", [2**31, 0], ids=["activations", "images"])
def test_the_second_phase_leaves_frozen_layers_bit_for_bit(
    pretrained: ModelConfig,
    digits: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    budget: int,
) -> None:
    monkeypatch.setattr(activations, "_BUDGET", budget)
    transfer = TransferConfig(unfreeze=1)
    training = TrainingConfig(epochs=8, learning_rate=3e-3)
    done = Case(digits(100), tmp_path, pretrained, transfer, training).run()
    assert [one.name for one in done.phases] == ["head", "fine_tune"]
    assert done.exported == "fine_tune"
    assert done.phases[1].on_features == bool(budget)
    assert done.history["phase"] == [1, *[2] * 8]
    losses = done.history["val_loss"]
    assert done.phases[1].progress.best == min(losses[1:])
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["fine_tune"]
    untrained = build(pretrained, 4)
    before, after = weights_by_layer(untrained), weights_by_layer(done.model)
    changed = {name for name in before if np.any(before[name] != after[name])}
    last = Parts.of(done.model).blocks[-1]
    normalization = tf_keras.layers.BatchNormalization
    trained = [layer for layer in last if not isinstance(layer, normalization)]
    assert len(trained) < len(last)
    assert changed == {v.name for layer in trained for v in layer.variables}


@pytest.mark.slow
def test_a_kill_in_the_second_phase_changes_nothing(
    pretrained: ModelConfig, digits: Any, tmp_path: Path
) -> None:
    training = TrainingConfig(epochs=3, checkpoint_steps=2)
    transfer = TransferConfig(unfreeze="all")
    case = Case(digits(100), tmp_path / "whole", pretrained, transfer, training)
    whole = case.run()
    killed = replace(case, folder=tmp_path / "killed", kill_at=17)
    with pytest.raises(tf.errors.OpError, match="Killed"):
        killed.run()
    again = replace(killed, kill_at=None).run()
    for ours, theirs in zip(again.model.get_weights(), whole.model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    measured = {RATE, INPUT_WAIT_FRACTION}
    for name in whole.history.keys() - measured:
        assert again.history[name] == whole.history[name]


@pytest.fixture(scope="module")
def head(
    pretrained: ModelConfig, digits: Any, tmp_path_factory: pytest.TempPathFactory
) -> tf_keras.Model:
    """A model after the first phase alone."""
    transfer = TransferConfig(unfreeze="none")
    folder = tmp_path_factory.mktemp("head")
    training = TrainingConfig(metric="loss")
    return Case(digits(100), folder, pretrained, transfer, training).run().model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "epochs", "warning"),
    [
        pytest.param(1.0, 1, "Fine-tuning has not improved the model beyond chance", id="worse"),
        pytest.param(
            1e38,
            2,
            "Training diverged in epoch 1 of phase fine_tune, as the loss was not finite: lower "
            "training.learning_rate, which is 1e+38.",
            id="diverged",
        ),
    ],
)
def test_weights_that_fine_tuning_spoils_are_discarded(
    pretrained: ModelConfig,
    head: tf_keras.Model,
    digits: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    rate: float,
    epochs: int,
    warning: str,
) -> None:
    # After a diverged epoch, the accuracy may be higher than the head's.
    training = TrainingConfig(epochs=epochs, learning_rate=rate, metric="loss")
    with caplog.at_level(logging.WARNING):
        both = Case(digits(100), tmp_path, pretrained, training=training).run()
    assert both.exported == "head"
    assert warning in caplog.text
    fine_tuning = both.phases[1].progress
    assert (fine_tuning.epochs, fine_tuning.diverged) == (1, rate > 1)
    for ours, theirs in zip(both.model.variables, head.variables, strict=True):
        if ours.dtype.is_floating:
            np.testing.assert_array_equal(ours, theirs)

from __future__ import annotations

import functools
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from components.transform.config import TransformConfig
from pipeline_def.config.augmentation import AugmentationConfig
from pipeline_def.config.input import InputConfig
from pipeline_def.config.model import ModelConfig
from pipeline_def.config.training import TrainingConfig
from pipeline_def.data.dataset import make_dataset
from pipeline_def.data.read_plan import TrainingOrder
from pipeline_def.data.shards import Shards
from pipeline_def.model.networks import build_model
from pipeline_def.training import loop as training
from pipeline_def.training.checkpoint import Progress
from pipeline_def.training.loop import TrainingLoop
from tests import nodes
from tests.conftest import SIZE

BATCH = 16
STEPS = 4
IMAGES = TransformConfig(size=SIZE - 4, margin=4)
AUGMENTATION = AugmentationConfig(shift=0.1, flip=True, mixup=0.2)


class Killed(Exception):
    pass


class Training:
    """A training whose input can be listened to, and which can be killed at any step."""

    def __init__(self, transformed: nodes.Transformed, folder: Path, **options: Any) -> None:
        self._transformed = transformed
        self._folder = folder
        self.input: InputConfig = options.pop("input", InputConfig(cache="none"))
        self.config = TrainingConfig(**{"epochs": 3, "batch_size": BATCH, "seed": 2, **options})
        self.seen: dict[int, bytes] = {}
        """Step → the images of its batch."""

    def _dataset(self, split: str, size: int, order: TrainingOrder | None) -> tf.data.Dataset:
        return make_dataset(
            Shards.of_pattern(f"{self._transformed.examples.uri}/Split-{split}/*"),
            config=IMAGES,
            feature_spec=tft.TFTransformOutput(
                self._transformed.graph.uri
            ).transformed_feature_spec(),
            batch_size=size,
            options=self.input,
            order=order,
        )

    def _read(
        self, step: int, part: tf.distribute.InputContext, kill_at: int | None
    ) -> tf.data.Dataset:
        def listen(number: Any, images: Any) -> Any:
            if kill_at is not None and number >= kill_at:
                raise Killed
            self.seen[int(number)] = images.tobytes()
            return np.int64(0)

        def tap(number: tf.Tensor, batch: tuple[tf.Tensor, tf.Tensor]) -> Any:
            heard = tf.numpy_function(listen, [number, batch[0]], tf.int64)
            with tf.control_dependencies([heard]):
                return tf.identity(batch[0]), batch[1]

        order = TrainingOrder.of_worker(self.config.seed, step, part)
        size = part.get_per_replica_batch_size(BATCH)
        return self._dataset("train", size, order).enumerate(order.start).map(tap)

    def run(self, kill_at: int | None = None) -> tuple[list[Any], dict[str, list[float]]]:
        """Return the weights and the history; a second run goes on where one was killed."""
        tf_keras.utils.set_random_seed(self.config.seed)
        tf.config.experimental.enable_op_determinism()
        model = build_model(
            ModelConfig(name="cnn", width=4, dropout=0.3),
            size=IMAGES.seen_size,
            classes=3,
            mean=[128] * 3,
            variance=[5000] * 3,
        )
        loop = TrainingLoop(
            model,
            config=self.config,
            augmentation=AUGMENTATION,
            batch_size=BATCH,
            steps=STEPS,
        )
        history = loop.fit(
            functools.partial(self._read, kill_at=kill_at),
            self._dataset("eval", BATCH, None),
            log_dir=str(self._folder / "logs"),
            checkpoint_dir=str(self._folder / "checkpoints"),
        )
        return model.get_weights(), history


def comparable(history: dict[str, list[float]]) -> dict[str, list[float]]:
    timed = (training.RATE, training.WAIT_SHARE)
    return {name: values for name, values in history.items() if name not in timed}


@pytest.fixture(scope="module")
def undisturbed(
    transformed: nodes.Transformed, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Training, Any]:
    whole = Training(transformed, tmp_path_factory.mktemp("whole"))
    return whole, whole.run()


@pytest.mark.parametrize(
    ("checkpoint_steps", "kill_at", "goes_on_at"),
    [
        pytest.param(0, 6, 4, id="at the end of the epoch before"),
        pytest.param(3, 7, 6, id="in the middle of an epoch"),
        pytest.param(1, 11, 11, id="just before it was killed"),
        pytest.param(0, 2, 0, id="from the start, as there is no checkpoint yet"),
    ],
)
def test_a_killed_training_ends_as_if_it_had_not_been(
    transformed: nodes.Transformed,
    undisturbed: tuple[Training, Any],
    tmp_path: Path,
    checkpoint_steps: int,
    kill_at: int,
    goes_on_at: int,
) -> None:
    whole, (weights, history) = undisturbed
    killed = Training(transformed, tmp_path, checkpoint_steps=checkpoint_steps)
    killed.input = InputConfig(cache="none", prefetch=1)
    with pytest.raises(tf.errors.UnknownError, match="Killed"):
        killed.run(kill_at=kill_at)
    killed.seen.clear()
    again, history_again = killed.run()
    assert min(killed.seen) == goes_on_at
    common = set(killed.seen) & set(whole.seen)
    assert common >= set(range(goes_on_at, 3 * STEPS))
    assert all(killed.seen[step] == whole.seen[step] for step in common)
    assert comparable(history_again) == comparable(history)
    for a, b in zip(again, weights, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not (tmp_path / "checkpoints").exists()


def test_history_and_logs(undisturbed: tuple[Training, Any]) -> None:
    _, (_, history) = undisturbed
    assert set(history) == {
        *("loss", "accuracy", "val_loss", "val_accuracy"),
        *(training.RATE, training.WAIT_SHARE),
    }
    assert all(len(values) == 3 for values in history.values())
    assert all(0 <= share <= 1 for share in history[training.WAIT_SHARE])
    assert all(rate > 0 for rate in history[training.RATE])


def test_the_best_epoch_is_kept_and_patience_ends_training(
    transformed: nodes.Transformed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([3.0, 1.0, 2.0, 4.0, 0.5])
    weights = []
    end_epoch = Progress.end_epoch

    def with_losses(progress: Any, values: dict[str, float], model: Any) -> None:
        weights.append(model.get_weights())
        end_epoch(progress, {**values, "val_loss": next(losses)}, model)

    monkeypatch.setattr(Progress, "end_epoch", with_losses)
    final, history = Training(transformed, tmp_path, epochs=5, patience=2).run()
    assert history["val_loss"] == [3.0, 1.0, 2.0, 4.0]
    for a, b in zip(final, weights[1], strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_slow_input_shows_as_waiting(
    transformed: nodes.Transformed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Training(transformed, tmp_path, epochs=2)
    read = slow._read

    def late(*args: Any, **options: Any) -> tf.data.Dataset:
        def wait(images: Any) -> Any:
            time.sleep(0.2)
            return images

        def delayed(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            same = tf.ensure_shape(tf.numpy_function(wait, [images], tf.uint8), images.shape)
            return same, labels

        return read(*args, **options).map(delayed)

    monkeypatch.setattr(slow, "_read", late)
    _, history = slow.run()
    assert history[training.WAIT_SHARE][1] > 0.5


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"profile_steps": 1}, id="after the tenth step"),
        pytest.param({"profile_steps": 2, "epochs": 1}, id="of a training of four steps"),
    ],
)
def test_a_profile_on_request(
    transformed: nodes.Transformed, tmp_path: Path, options: dict[str, int]
) -> None:
    Training(transformed, tmp_path, **options).run()
    assert list((tmp_path / "logs").rglob("*.xplane.pb"))


def test_without_a_request_no_profile(undisturbed: tuple[Training, Any]) -> None:
    whole, _ = undisturbed
    assert not list(whole._folder.rglob("*.xplane.pb"))
    shutil.rmtree(whole._folder)

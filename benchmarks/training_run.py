"""Measures one training in a fresh process; prints JSON.

python -m benchmarks.training_run '{"contender": "cache decoded", "folder": …}'
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
import tf_keras

from benchmarks.ladder.data import Material
from benchmarks.ladder.rungs import FEATURE_SPEC, ONE_BY_ONE
from components.contract.model_files import INPUT_WAIT_FRACTION, RATE
from components.trainer.config.augmentation import AugmentationConfig
from components.trainer.config.input import InputConfig
from components.trainer.config.model import ModelConfig
from components.trainer.config.training import TrainingConfig
from components.trainer.input.augment import augment
from components.trainer.input.dataset import make_dataset
from components.trainer.input.sampler import TrainingOrder
from components.trainer.loop.log import TrainingLog
from components.trainer.loop.optimizer import Schedule, make_optimizer
from components.trainer.loop.step import Step
from components.trainer.loop.train import TrainingLoop
from components.trainer.networks.networks import build_model

NAIVE = "naive: a file after the other, then the step"
NAIVE_AHEAD = "the same files, in this pipeline's loop"
JPEG = "JPEG shards, no cache"
DECODED = "cache decoded"
CONTENDERS = (NAIVE, NAIVE_AHEAD, JPEG, DECODED)
"""The first is compared with each of the others."""

_AUGMENTATION = AugmentationConfig()


@dataclass(frozen=True)
class Task:
    """What to measure."""

    contender: str
    folder: str
    """Where `ladder.data.prepare` wrote the images."""
    network: str
    batch: int
    epochs: int

    @property
    def material(self) -> Material:
        """The images."""
        return Material.load(self.folder, self.folder)

    @property
    def steps(self) -> int:
        """Training steps per epoch."""
        return self.material.images // self.batch

    @property
    def training(self) -> TrainingConfig:
        """The options of the loop, without early stopping."""
        return TrainingConfig(epochs=self.epochs, patience=self.epochs, batch_size=self.batch)

    def network_of_its_own(self) -> tf_keras.Model:
        """Build the network."""
        return build_model(
            ModelConfig(name=self.network),
            size=self.material.size,
            classes=max(self.material.labels) + 1,
            mean=[128.0] * 3,
            variance=[5000.0] * 3,
        )

    def batches(self) -> tf.data.Dataset:
        """Return the endless batches of the contender."""
        naive = ONE_BY_ONE["originals"]
        readers: dict[str, Callable[[], tf.data.Dataset]] = {
            NAIVE: lambda: naive(self.material, self.batch),
            NAIVE_AHEAD: lambda: naive(self.material, self.batch),
            DECODED: lambda: self._read(TrainingOrder(seed=1), cache="decoded"),
            JPEG: lambda: self._read(TrainingOrder(seed=1), cache="none"),
        }
        return readers[self.contender]()

    def evaluation(self) -> tf.data.Dataset:
        """Return one batch, because evaluation is not measured."""
        return self._read(None, cache="none").take(1)

    def _read(self, order: TrainingOrder | None, **options: Any) -> tf.data.Dataset:
        return make_dataset(
            self.material.shards("jpeg"),
            config=self.material.config(),
            feature_spec=FEATURE_SPEC,
            batch_size=self.batch,
            options=InputConfig(**options),
            order=order,
        )


def main() -> None:
    """Measure the task in the only argument, which is JSON."""
    print(json.dumps(measure(Task(**json.loads(sys.argv[1])))))


def measure(task: Task) -> dict[str, Any]:
    """Return `images_per_second` and `wait_share` of each epoch after the first.

    And the `seconds` of all epochs, with what comes before.
    """
    # A process in which determinism is on refuses to shuffle without a seed.
    tf.random.set_seed(1)
    return _measure_naive(task) if task.contender == NAIVE else _measure_training(task)


def _measure_training(task: Task) -> dict[str, Any]:
    """Train as Trainer does; return rate and waiting of each epoch, and the seconds of all."""
    started = time.perf_counter()
    step = Step(
        task.network_of_its_own(),
        config=task.training,
        augmentation=_AUGMENTATION,
        batch_size=task.batch,
        steps=task.steps,
    )
    loop = TrainingLoop(step)
    with tempfile.TemporaryDirectory() as folder, TrainingLog(f"{folder}/logs") as log:
        history = loop.fit(
            lambda *_: task.batches(), task.evaluation, log=log, checkpoint_dir=f"{folder}/ckpt"
        ).history
    return {
        "images_per_second": _settled(history[RATE]),
        "wait_share": _settled(history[INPUT_WAIT_FRACTION]),
        "seconds": time.perf_counter() - started,
    }


def _settled(values: list[float]) -> list[float]:
    """Leave out the first epoch, in which graphs are traced and caches filled."""
    return values[1:] or values


def _measure_naive(task: Task) -> dict[str, Any]:
    """Train as a beginner's loop does: take a batch, run a step, wait for it, take the next."""
    started = time.perf_counter()
    step, batches = _plain_step(task), iter(task.batches())
    rates, waits = [], []
    for _ in range(task.epochs):
        began, waited = time.perf_counter(), 0.0
        for number in range(task.steps):
            asked = time.perf_counter()
            images, labels = next(batches)
            waited += time.perf_counter() - asked
            step(images, labels, tf.constant(number, tf.int64)).numpy()
        seconds = time.perf_counter() - began
        rates.append(task.steps * task.batch / seconds)
        waits.append(waited / seconds)
    return {
        "images_per_second": _settled(rates),
        "wait_share": _settled(waits),
        "seconds": time.perf_counter() - started,
    }


def _plain_step(task: Task) -> Callable[..., tf.Tensor]:
    """Return the shortest training step: augment, forward, backward, update."""
    model, config = task.network_of_its_own(), task.training
    schedule = Schedule(config, steps=task.steps)
    optimizer = make_optimizer(config, model.trainable_variables, schedule=schedule)
    classes = model.output_shape[-1]

    @tf.function(autograph=False)
    def step(images: tf.Tensor, labels: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        seed = tf.stack([tf.constant(0, tf.int64), number])
        images, labels = augment(images, labels, seed=seed, config=_AUGMENTATION, classes=classes)
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    return step  # type: ignore[no-any-return]


if __name__ == "__main__":
    main()

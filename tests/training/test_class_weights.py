"""What class weights are for, on handwritten digits of which two classes are rare."""

from __future__ import annotations

import statistics
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
import tf_keras
from sklearn.datasets import load_digits

from pipeline_def.config.training import TrainingConfig
from pipeline_def.training.loop import TrainingLoop
from pipeline_def.training.tensorboard.log import TrainingLog

BATCH, CLASSES = 32, 10
RARE_SHARE = 0.05

Split = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]


def digits(seed: int) -> tuple[Split, Split]:
    """Return a split to train on, with two classes cut to 5 %, and one to judge by, which is whole.

    Images are uint8 [n, 8, 8, 3].
    """
    data = load_digits()
    images = np.round(data.images * (255 / 16)).astype(np.uint8)[..., np.newaxis].repeat(3, axis=3)
    labels = data.target.astype(np.int64)
    random = np.random.default_rng(seed)
    order = random.permutation(len(labels))
    judge, train = order[:600], order[600:]
    rare = random.choice(CLASSES, 2, replace=False)
    kept = [
        chosen[: round(len(chosen) * (RARE_SHARE if label in rare else 1))]
        for label in range(CLASSES)
        if len(chosen := train[labels[train] == label])
    ]
    train = random.permutation(np.concatenate(kept))
    return (images[train], labels[train]), (images[judge], labels[judge])


def network(seed: int) -> tf_keras.Model:
    tf_keras.utils.set_random_seed(seed)
    layers = [
        tf_keras.layers.Rescaling(1 / 255, input_shape=(8, 8, 3)),
        tf_keras.layers.Conv2D(16, 3, activation="relu"),
        tf_keras.layers.Flatten(),
        tf_keras.layers.Dense(CLASSES),
    ]
    return tf_keras.Sequential(layers)


def balanced_accuracy(seed: int, folder: Path, *, weighted: bool) -> float:
    """Train; return the mean recall of all classes on images that are not cut."""
    (images, labels), judge = digits(seed)
    weights = (len(labels) / CLASSES / np.bincount(labels)).tolist()
    loop = TrainingLoop(
        network(seed),
        config=TrainingConfig(epochs=4, patience=4, batch_size=BATCH, learning_rate=3e-3),
        augmentation=None,
        batch_size=BATCH,
        steps=len(labels) // BATCH,
        class_weights=weights if weighted else None,
    )
    data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(2000, seed=seed).repeat()
    with TrainingLog(str(folder / "logs")) as log:
        history = loop.fit(
            lambda *_: data.batch(BATCH, drop_remainder=True),
            lambda: tf.data.Dataset.from_tensor_slices(judge).batch(200),
            log=log,
            checkpoint_dir=str(folder / "checkpoints"),
        )
    return history["val_balanced_accuracy"][-1]


@pytest.mark.slow
def test_class_weights_raise_balanced_accuracy(tmp_path: Path) -> None:
    scores = {
        weighted: [
            balanced_accuracy(seed, tmp_path / f"{seed}-{weighted}", weighted=weighted)
            for seed in range(4)
        ]
        for weighted in (False, True)
    }
    gains = [ours - theirs for theirs, ours in zip(*scores.values(), strict=True)]
    assert min(gains) > 0, scores
    assert statistics.mean(gains) > 0.03, scores

"""Whether and how all images are divided into folds: few images, split by hash, little work."""

import collections
import dataclasses
import logging
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras

from components.contract.confidence import widest
from components.contract.example import ENCODED, EVAL, LABEL_ID, SHA256, TEST, TRAIN
from components.contract.rules_of_thumb import FEW_FOR_WEIGHTS, FEW_IMAGES, LEAST_FOR_FOLDS
from components.host.progress import report_result
from components.records.record_index import write_indexed_shard
from components.records.shard_files import read_index, write_index
from components.records.tfrecord import read_features
from components.trainer.input.shards import RecordTable, Shards
from components.trainer.loop.activations import VIEWS
from components.trainer.loop.strategy import has_workers
from components.trainer.training_input import TrainingInput

_LOGGER = logging.getLogger(__name__)

# Of `training.folds: auto`; fewer for many images and pretrained weights, where more take longer.
_FOLDS, _FEWER_FOLDS, _SECONDS = 5, 3, 300
# Or the seconds that each hundredth is worth by which they narrow the interval of the accuracy.
_SECONDS_A_HUNDREDTH = 60
# Or the fraction of a search that its first trial may take.
_SEARCHED = 0.25

# Multiplications a second on two cores: the own network trained on 300 images of 96 pixels a second
# is at 7e10, networks with depthwise convolutions are slower. The estimate must not depend on the
# machine: the same images and options give the same model everywhere.
_SPEED = 4e10
# A backward pass costs as much as two forward passes.
_PASSES = 3
# Seconds to trace the training step, which the folds share.
_START = 10

_SHARD = "data_tfrecord-00000-of-00001"
_KEPT = tuple(name.encode() for name in (ENCODED, SHA256))

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SmallSet:
    """All images of the train and eval splits, train first, in the order of their records."""

    records: list[dict[str, Any]]
    """Features of each image, with its label id."""
    units: list[str]
    """What each image has in common with those that must stay in its fold."""

    @classmethod
    def read(cls, data: TrainingInput) -> Self:
        """Read the transformed images."""
        together: Mapping[str, str] = read_index(data.train.uri).get("groups", {})
        records = [record for shards in (data.train, data.evaluation) for record in _read(shards)]
        keys = [record[SHA256].decode() for record in records]
        return cls(records, [together.get(key, key) for key in keys])

    @property
    def keys(self) -> tuple[str, ...]:
        """SHA-256 of each image."""
        return tuple(record[SHA256].decode() for record in self.records)

    @property
    def labels(self) -> Rows:
        """Label id of each image."""
        return np.array([record[LABEL_ID] for record in self.records], np.int64)

    def assign(self, folds: int) -> Rows:
        """Return the fold of each image, from 0, [images]."""
        return assign_folds(self.labels, self.units, folds)

    def divide(self, data: TrainingInput, judged: Rows, *, replicas: int) -> TrainingInput:
        """Return the input of a training on all images but the `judged` ones."""
        options = data.config.input
        # A file would stay behind, and rows are read by their index.
        cache = "decoded" if options.cache == "file" else options.cache
        options = dataclasses.replace(options, cache=cache, reader="auto")
        config = dataclasses.replace(data.config, input=options)
        learned = np.setdiff1d(np.arange(len(self.records)), judged)
        train, evaluation = (
            dataclasses.replace(self._shards, rows=tuple(rows.tolist()))
            for rows in (learned, judged)
        )
        return dataclasses.replace(data, config=config).of(train, evaluation, replicas)

    @cached_property
    def _shards(self) -> Shards:
        """All images, in a file that is removed with this object."""
        folder = self._folder.name
        count = write_indexed_shard(folder, TRAIN, _SHARD, self.records)
        write_index(folder, {TRAIN: {_SHARD: count}}, labels={})
        return Shards(folder, TRAIN, {_SHARD: count})

    @cached_property
    def _folder(self) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(prefix="folds-")


def _read(shards: Shards) -> Iterator[dict[str, Any]]:
    labels = iter(RecordTable.read(shards).label.tolist())
    for path in shards.paths:
        for features in read_features(path, _KEPT):
            texts = {name.decode(): bytes(value) for name, value in features.items()}
            yield {**texts, LABEL_ID: next(labels)}


def assign_folds(labels: npt.NDArray[np.int64], groups: Sequence[str], folds: int) -> Rows:
    """Return the fold of each image, from 0, [images].

    The largest groups come first, in the order of their names, which are digests. Each goes to the
    fold that has the fewest images of its classes, then to the one with the fewest images.

    Args:
        labels: label id of each image.
        groups: what each image has in common with those that must stay with it.
        folds: number of folds.

    >>> assign_folds(np.array([0, 0, 0, 0, 1, 1]), ["a", "b", "c", "a", "e", "f"], 2)
    array([0, 1, 1, 0, 0, 1])
    """
    members: dict[str, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    counts = np.zeros((folds, max(labels.tolist(), default=0) + 1), np.int64)
    assigned = np.empty(len(labels), np.int64)
    for _, rows in sorted(members.items(), key=lambda item: (-len(item[1]), item[0])):
        of_group = collections.Counter(labels[rows].tolist())
        of_classes = counts[:, list(of_group)].sum(axis=1)
        fold = int(np.lexsort((counts.sum(axis=1), of_classes))[0])
        assigned[rows] = fold
        for label, number in of_group.items():
            counts[fold, label] += number
    return assigned


def choose_folds(data: TrainingInput, model: tf_keras.Model) -> int:
    """Return the number of folds; 0: the eval split selects the epoch."""
    wanted = data.config.training.folds
    if wanted == 0 or (wanted == "auto" and not data.config.judged_by_folds):
        return 0
    folds = _FOLDS if wanted == "auto" else wanted
    if reason := _explain_unfit(data, model.distribute_strategy, folds):
        tell = _LOGGER.info if wanted == "auto" else report_result
        tell(f"no folds: {reason}")
        return 0
    multiplications = count_multiplications(model)
    seconds = estimate_seconds(data, multiplications, folds=folds)
    gain, narrower = _describe_gain(data)
    worth = max(_SECONDS, _SECONDS_A_HUNDREDTH * 100 * narrower)
    most = max(worth, _SEARCHED * 60 * (data.config.training.minutes or 0))
    if wanted == "auto" and seconds > most:
        fewer = estimate_seconds(data, multiplications, folds=_FEWER_FOLDS)
        is_cheap = data.config.model.pretrained and data.config.transfer.unfreeze != "all"
        # Without a test split, nothing else gives an estimate that the training did not choose.
        if not is_cheap or (not narrower and fewer > 2 * most):
            report_result(f"no folds: {_say(seconds)}, --training.folds {folds}")
            report_result(gain)
            return 0
        folds, seconds = _FEWER_FOLDS, fewer
    report_result(f"{folds} folds: {_say(seconds)}")
    report_result(gain)
    return folds


def _say(seconds: float) -> str:
    minutes = math.ceil(seconds / 60)
    return f"about {minutes:,} more minute{'s' * (minutes != 1)}"


def _describe_gain(data: TrainingInput) -> tuple[str, float]:
    """Say what cross-validation brings, and by how much it narrows the interval of the accuracy.

    In a line of its own, as a terminal cuts long ones.
    """
    images = data.train.total + data.evaluation.total
    if TEST in read_index(data.train.uri)["splits"]:
        return f"to train on all {images:,} images", 0.0
    before, after = widest(data.evaluation.total), widest(images)
    gain = f"for ± {after:.2f} instead of ± {before:.2f}, by all {images:,} images"
    return gain, before - after


def _explain_unfit(data: TrainingInput, strategy: tf.distribute.Strategy, folds: int) -> str:
    """Say as a clause why the images are not divided into folds; "" if they can be."""
    index, images = read_index(data.train.uri), data.train.total + data.evaluation.total
    few = FEW_FOR_WEIGHTS if data.config.model.pretrained else FEW_IMAGES
    if images >= few or "groups" not in index or EVAL not in index["splits"]:
        return f"there are {few:,} images or more, or you have named the eval split"
    if images < LEAST_FOR_FOLDS:
        return f"there are fewer than {LEAST_FOR_FOLDS} images"
    if has_workers(strategy):
        return "several workers share the training"
    if data.config.model.weights_file:
        return "the initial weights are those of an earlier training, which may know the images"
    # A fold without images could not be judged.
    units = len(set(SmallSet.read(data).units))
    return f"groups and copies leave only {units} sets of images" if units < folds else ""


def estimate_seconds(data: TrainingInput, multiplications: int, *, folds: int) -> float:
    """Estimate how much longer a training with folds takes on two cores."""
    config, images = data.config, data.train.total + data.evaluation.total
    learning = images * (1 - 1 / folds)
    passes: float = folds * _PASSES * config.training.epochs
    if config.model.pretrained:
        # The folds share what frozen layers compute; without depthwise filters, the last half of
        # the layers takes less than a third of the time.
        trained = {"none": 0.0, "all": 1.0}.get(str(config.transfer.unfreeze), 0.3)
        passes = passes * trained + (1 if trained == 1 else VIEWS)
    return _START + passes * learning * multiplications / _SPEED


def count_multiplications(model: tf_keras.Model) -> int:
    """Count the multiplications of convolutions and dense layers for one image."""
    image = tf.TensorSpec([1, *model.input_shape[1:]], tf.uint8)
    predict = tf.function(lambda images: model(images, training=False), autograph=False)
    total = 0
    for operation in predict.get_concrete_function(image).graph.get_operations():
        if operation.type in ("Conv2D", "MatMul", "DepthwiseConv2dNative"):
            output, kernel = operation.outputs[0].shape, operation.inputs[1].shape
            # Each number takes the part of the kernel that belongs to its channel.
            total += output.num_elements() * kernel.num_elements() // output[-1]
    return total

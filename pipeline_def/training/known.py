"""Fits the score of `known`, and measures it with classes left out of further trainings."""

import dataclasses
import functools
import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from numpy.typing import NDArray

from components.contract.progress import naming_fold, report_fold
from components.metrics.unknowns import (
    KINDS,
    Judged,
    LeftOut,
    Unknowns,
    compare_left_out,
)
from pipeline_def.config.model import ModelConfig
from pipeline_def.data.shards import RecordTable, Shards
from pipeline_def.model.networks import make_plain, precision
from pipeline_def.model.weights_file import read_weights
from pipeline_def.serving.known import SCORE, KnownScore, features_or_logits, unit
from pipeline_def.training.distribution.workers import has_workers
from pipeline_def.training.phases import Training
from pipeline_def.training.training_input import TrainingInput

_LOGGER = logging.getLogger(__name__)

# Part of the covariance that is replaced by its mean variance, as there may be fewer images than
# features. Between 0.001 and 0.3 it made no difference on CIFAR-10 and the digits.
_SHRINKAGE = 0.01
# Columns of the residual. More are mixed at random (Johnson and Lindenstrauss, 1984), which changes
# a squared distance by 9% (standard deviation): 1,280 features would take 6.5 MB.
_OUTSIDE = 256
# Two classes that the network can tell apart are left in any case.
_LEAST_CLASSES = 2
# Rounding must not cost an image.
_EPSILON = 1e-9

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]


def fit_known(
    model: tf_keras.Model, data: TrainingInput, *, rate: float
) -> tuple[KnownScore, Unknowns]:
    """Fit the score on the training images, and its threshold on the eval split.

    The threshold is the corrected quantile of Angelopoulos and Bates (2021): a further image like
    those of the eval split has a lower score with a probability of at most `rate`.
    """
    score = learn_score(model, data)
    parts, _, ids = _measure(model, score, data.read_in_order(data.evaluation))
    parts = parts[ids >= 0]
    score = score.standardize(parts) if len(parts) else score
    known = np.sort(score.add(parts))
    most = math.floor((len(known) + 1) * rate + _EPSILON)
    threshold = float(known[most - 1]) if most else None
    return dataclasses.replace(score, threshold=threshold), Unknowns(
        rate, len(known), threshold, SCORE
    )


def learn_score(model: tf_keras.Model, data: TrainingInput) -> KnownScore:
    """Fit the score on the features of all training images, which are read once."""
    classes = model.output_shape[-1]

    def describe(images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        features = features_or_logits(model(images, training=False))
        return unit(features), features

    counts, describe = np.zeros(classes), _compile(model, describe)
    sums: list[Any] = [0.0, 0.0]
    products: list[Any] = [0.0, 0.0]
    for images, ids in data.read_in_order(data.train):
        given = np.eye(classes)[ids.numpy()]
        counts += given.sum(axis=0)
        for number, features in enumerate(describe(images)):
            features = features.numpy().astype(np.float64)
            sums[number] = sums[number] + given.T @ features
            products[number] = products[number] + features.T @ features
    units, plain = map(functools.partial(project, counts), sums, products)
    return dataclasses.replace(units, origin=plain.origin, outside=plain.outside)


def project(counts: Floats, sums: Floats, products: Floats) -> KnownScore:
    """Return the score of features with these moments, as if they were not scaled.

    The axes diagonalize the covariances within the classes and between them, as in linear
    discriminant analysis.

    Args:
        counts: images of each class, [classes]; classes without any are ignored.
        sums: of the features of each class, [classes, features].
        products: sum of the outer products of all features, [features, features].
    """
    seen = counts > 0
    weights, means = counts[seen] / counts.sum(), sums[seen] / counts[seen, np.newaxis]
    center = weights @ means
    within = products / counts.sum() - (means.T * weights) @ means
    variance = max(np.trace(within) / len(within), np.finfo(np.float32).tiny)
    within = (1 - _SHRINKAGE) * within + _SHRINKAGE * variance * np.eye(len(within))
    root = np.linalg.cholesky(within)
    between = np.linalg.solve(root, ((means - center) * np.sqrt(weights)[:, np.newaxis]).T)
    axes, spread, _ = np.linalg.svd(between, full_matrices=False)
    # The weighted means add up to zero, so that they differ in one direction less.
    spread = spread[: max(len(means) - 1, 1)]
    axes = axes[:, : len(spread)]
    projection = np.linalg.solve(root.T, axes)
    return KnownScore(
        center=center.astype(np.float32),
        projection=projection.astype(np.float32),
        means=((means - center) @ projection).astype(np.float32),
        shrinkage=(spread**2 / (1 + spread**2)).astype(np.float32),
        origin=center.astype(np.float32),
        outside=np.linalg.solve(root.T, _complete(axes)).astype(np.float32),
    )


def _complete(axes: Floats) -> Floats:
    """Return the further axes of the space, [features, others]; a zero if there are none."""
    space, _ = np.linalg.qr(axes, mode="complete")
    others = space[:, axes.shape[1] :]
    if others.shape[1] > _OUTSIDE:
        mixed = np.random.default_rng(0).normal(size=(others.shape[1], _OUTSIDE))
        others = others @ mixed / math.sqrt(_OUTSIDE)
    return others if others.size else np.zeros((len(axes), 1))


def _compile(model: tf_keras.Model, function: Callable[[tf.Tensor], Any]) -> Any:
    images = tf.TensorSpec(model.input_shape, tf.uint8)
    return tf.function(function, input_signature=[images], autograph=False)


def _measure(
    model: tf_keras.Model, score: KnownScore, images: tf.data.Dataset
) -> tuple[Floats, Floats, Ids]:
    """Return energy, distance and residual, [images, 3], highest probability, and label ids."""

    def measure(batch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        logits = model(batch, training=False)
        highest = tf.reduce_max(tf.nn.softmax(logits), axis=1)
        return tf.stack(score.measure(logits), axis=1), highest

    compiled = _compile(model, measure)
    rows = [(*(of.numpy() for of in compiled(batch)), ids.numpy()) for batch, ids in images]
    if not rows:
        return np.empty((0, 3)), np.empty(0), np.empty(0, np.int64)
    parts, highest, ids = (np.concatenate(column) for column in zip(*rows, strict=True))
    return parts.astype(np.float64), highest, ids


def judge_left_out(
    training: Training,
    build: Callable[[ModelConfig], tf_keras.Model],
    data: TrainingInput,
    labels: Sequence[str],
    *,
    log_dir: str,
    checkpoint_dir: str,
) -> LeftOut:
    """Train anew without some classes, then without others, until each class was left out once.

    Each training takes the recipe and the epochs of `training`. None sees the eval split, with
    whose images those of the classes left out are compared.

    Args:
        training: of the exported model.
        build: returns a network with its first weights.
        data: input of `training`.
        labels: text of each label id.
        log_dir: folder of the TensorBoard logs.
        checkpoint_dir: keeps the checkpoints.
    """
    strategy, config = training.model.distribute_strategy, data.config
    ids = RecordTable.read(data.train).label
    groups = assign_classes(np.unique(ids[ids >= 0]), config.export.left_out)
    if reason := _explain_unfit(data, strategy, groups):
        _LOGGER.warning("export.left_out is %d, but is not used: %s.", len(groups), reason)
        return LeftOut(reason=reason)
    lengths = _find_lengths(training)
    judged = []
    for number, group in enumerate(groups, start=1):
        name = f"left out {number}/{len(groups)}"
        started = time.monotonic()
        with strategy.scope(), precision(config.training.precision):
            model = build(config.model)
        learned = leave_out(data, strategy.num_replicas_in_sync, group)
        logs, saved = (
            os.path.join(of, "left_out", str(number)) for of in (log_dir, checkpoint_dir)
        )
        with naming_fold(name):
            Training(model, learned, logs, saved, lengths=lengths).run()
        plain = make_plain(model, lambda: build(config.model), config.training.precision)
        judged.append(_judge(plain, data, learned, group))
        report_fold(f"{name} {time.monotonic() - started:.0f} s")
    return compare_left_out(judged, labels, rate=config.export.false_alarms or 0.0)


def assign_classes(classes: Ids, trainings: int) -> list[Ids]:
    """Divide label ids at random, but always alike, into the groups to leave out."""
    shuffled = np.random.default_rng(0).permutation(classes)
    return [np.sort(shuffled[first::trainings]) for first in range(min(trainings, len(classes)))]


def _explain_unfit(
    data: TrainingInput, strategy: tf.distribute.Strategy, groups: Sequence[Ids]
) -> str:
    """Say as a clause why no classes are left out; "" if they can be."""
    if sum(map(len, groups)) - max(map(len, groups)) < _LEAST_CLASSES:
        return "fewer than two classes would be left"
    if not data.evaluation.total:
        return "the eval split has no images to compare with"
    if has_workers(strategy):
        return "several workers share the training"
    weights = data.config.model.weights_file
    if data.config.model.start or (weights and read_weights(weights).network):
        return "the first weights are those of an earlier training, which may know the classes"
    return ""


def _find_lengths(training: Training) -> dict[str, int]:
    """Return the epochs of each phase that the exported weights have been through."""
    lengths = {}
    for phase in training.phases:
        lengths[phase.name] = phase.progress.best_epoch
        if phase.name == training.exported:
            break
    return lengths


def leave_out(data: TrainingInput, replicas: int, group: Ids) -> TrainingInput:
    """Return the input of a training without the classes in `group`, and without an eval split."""
    options = data.config.input
    # A file would stay behind, and rows are read by their index.
    cache = "decoded" if options.cache == "file" else options.cache
    cache = cache if data.train.local else "encoded"
    options = dataclasses.replace(options, cache=cache, reader="indexed")
    config = dataclasses.replace(data.config, input=options)
    nobody = dataclasses.replace(data.evaluation, rows=())
    part = dataclasses.replace(data, config=config)
    return part.of(select(data.train, group, without=True), nobody, replicas)


def select(shards: Shards, group: Ids, *, without: bool = False) -> Shards:
    """Return the images with, or without, the labels in `group`."""
    rows = np.flatnonzero(np.isin(RecordTable.read(shards).label, group) != without)
    return dataclasses.replace(shards, rows=tuple(rows.tolist()))


def _judge(
    model: tf_keras.Model, data: TrainingInput, learned: TrainingInput, group: Ids
) -> Judged:
    """Score the images of the eval split, and all images of the classes in `group`."""
    score = learn_score(model, learned)
    parts, highest, ids = _measure(model, score, data.read_in_order(data.evaluation))
    is_known = (ids >= 0) & ~np.isin(ids, group)
    score = score.standardize(parts[is_known])
    known = (np.where(is_known, of, np.nan) for of in (score.add(parts), highest))
    splits = [select(of, group) for of in (data.train, data.evaluation)]
    found = [_measure(model, score, learned.read_in_order(of)) for of in splits if of.total]
    parts, highest, ids = (np.concatenate(column) for column in zip(*found, strict=True))
    scores = score.add(parts)
    return Judged(
        dict(zip(KINDS, known, strict=True)),
        {
            number: {KINDS[0]: scores[ids == number], KINDS[1]: highest[ids == number]}
            for number in group.tolist()
        },
    )

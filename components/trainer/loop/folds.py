"""Cross-validation: every image is judged by a model that has not seen it.

The same recipe trains the same network for each fold on the images of the others. A fold is judged
at the epoch that was best for the others; all images train the model to export, up to the epoch
that was best for all folds. The folds share the compiled steps and the features of a frozen
backbone. None starts from weights that have seen its images.
"""

import collections
import io
import itertools
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
import tensorflow as tf
import tf_keras
from numpy.typing import NDArray
from scipy.special import softmax

from components.host.progress import naming_fold, report_result
from components.metrics.fold_predictions import FoldPredictions
from components.storage.folder import replace_file
from components.trainer.config.training import TrainerConfig
from components.trainer.loop.calibration import fit_temperature, improves
from components.trainer.loop.fold_images import Rows, SmallSet
from components.trainer.loop.known_features import score_evaluation
from components.trainer.loop.linear_head import fit_head, measure
from components.trainer.loop.train import HEAD, Mode, Shared, Training, full_lengths
from components.trainer.networks.parts import Parts
from components.trainer.training_input import TrainingInput

Logits = NDArray[np.float32]
Scores = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class FoldResult:
    """A trained fold; its epochs are those of all phases."""

    logits: Logits
    """Of the images that it judges, after each epoch, [epochs, images, classes]."""
    curves: Mapping[str, list[float]]
    """Metric on these images, but for classes of this fold alone → its values."""
    seconds: float
    known_scores: Mapping[str, Scores] = field(default_factory=dict)
    """Of these images, after the last epoch of each phase; none without a last Dense layer."""

    def save(self, path: str) -> None:
        """Write the result to a file that appears whole or not at all."""
        facts = {"curves": self.curves, "seconds": self.seconds}
        buffer = io.BytesIO()
        np.savez(buffer, logits=self.logits, facts=json.dumps(facts), **self.known_scores)
        replace_file(path, buffer.getvalue())

    @classmethod
    def load(cls, path: str) -> Self | None:
        """Read the result of an interrupted attempt; None if there is none."""
        if not tf.io.gfile.exists(path):
            return None
        with tf.io.gfile.GFile(path, "rb") as file, np.load(io.BytesIO(file.read())) as arrays:
            facts = json.loads(str(arrays["facts"]))
            scores = {name: arrays[name] for name in arrays if name not in ("logits", "facts")}
            return cls(arrays["logits"], known_scores=scores, **facts)


@dataclass(frozen=True, eq=False)
class Validated:
    """The results of all folds."""

    images: SmallSet
    assigned: Rows
    """Fold of each image, from 0."""
    results: list[FoldResult]
    config: TrainerConfig

    @cached_property
    def epochs(self) -> list[int]:
        """The epoch, from 1, at which each fold is judged: the best one of the other folds.

        Its own images, which it is judged by, have no part in that choice.
        """
        return [self.choose_epoch(without=fold) for fold in range(len(self.results))]

    @cached_property
    def learned(self) -> NDArray[np.bool_]:
        """Whether the model of its fold has learned the class of each image, [images].

        Images of a class that lies in one fold say nothing about a training on all images.
        """
        learned = np.empty(len(self.assigned), bool)
        for fold in np.unique(self.assigned):
            judged = self.assigned == fold
            learned[judged] = np.isin(self.images.labels[judged], self.images.labels[~judged])
        return learned if learned.any() else ~learned

    def choose_epoch(self, *, without: int | None = None) -> int:
        """Return the epoch, from 1, with the best mean of `training.metric` over the folds.

        It is the last one if `training.keep` says so, and that of the head unless fine-tuning is
        better beyond chance.
        """
        metric = self.config.training.metric
        curve = self.mean_curve(f"val_{metric}", without=without)
        # NaN from the epoch on in which a fold diverged.
        if self.config.training.keep == "last":
            best = int(np.flatnonzero(np.isfinite(curve))[-1])
        else:
            best = int(np.nanargmin(curve) if metric == "loss" else np.nanargmax(curve))
        if best and HEAD in full_lengths(self.config) and not self._improves(best, without):
            return 1
        return best + 1

    def _improves(self, epoch: int, without: int | None) -> bool:
        """Return whether an epoch, from 0, is better than the first one beyond chance."""
        folds = [fold for fold in range(len(self.results)) if fold != without]
        ids = [self.images.labels[self.assigned == fold] for fold in folds]
        rows = np.concatenate([self.learned[self.assigned == fold] for fold in folds])
        first, last = (
            np.concatenate([self.results[fold].logits[number] for fold in folds])
            for number in (0, epoch)
        )
        return improves(first[rows], last[rows], np.concatenate(ids)[rows])

    def mean_curve(self, metric: str, *, without: int | None = None) -> NDArray[np.float64]:
        """Return the mean over the images of all folds, or of all but one, in each epoch."""
        folds = [fold for fold in range(len(self.results)) if fold != without]
        weights = [max(1, self.learned[self.assigned == fold].sum()) for fold in folds]
        values = [self.results[fold].curves[metric] for fold in folds]
        mean: NDArray[np.float64] = np.average(np.array(values), axis=0, weights=weights)
        return mean

    @property
    def lengths(self) -> dict[str, int]:
        """Phase → its epochs in the training on all images."""
        left, lengths = self.choose_epoch(), {}
        for phase, most in full_lengths(self.config).items():
            if left:
                lengths[phase] = min(left, most)
                left -= lengths[phase]
        return lengths

    @cached_property
    def logits(self) -> Logits:
        """Of all images, each by the model of its fold, [images, classes]."""
        logits = np.empty((len(self.assigned), self.results[0].logits.shape[2]), np.float32)
        for fold, (result, epoch) in enumerate(zip(self.results, self.epochs, strict=True)):
            logits[self.assigned == fold] = result.logits[epoch - 1]
        return logits

    def known_scores(self, phase: str) -> Scores:
        """How much each image is like those that its fold learned from, [images].

        By the weights at the end of a phase. NaN where there are none, or no last Dense layer, and
        for a class that the fold has not learned.
        """
        known = np.full(len(self.assigned), np.nan, np.float32)
        for fold, result in enumerate(self.results):
            if phase in result.known_scores:
                known[self.assigned == fold] = result.known_scores[phase]
        known[~self.learned] = np.nan
        return known

    def fit_temperature(self, *, without: int = -1) -> float:
        """Fit the divisor of the logits to the images of all folds, or of all but one."""
        rows = self.learned & (self.assigned != without)
        return fit_temperature(self.logits[rows], self.images.labels[rows])

    def predict(self, labels: tuple[str, ...]) -> FoldPredictions:
        """Return the predictions; the temperature of a fold is fitted to those of the others."""
        logits = self.logits.astype(np.float64)
        for fold in range(len(self.results) if self.config.training.calibrate else 0):
            logits[self.assigned == fold] /= self.fit_temperature(without=fold)
        probabilities = softmax(logits, axis=1).astype(np.float32)
        return FoldPredictions(labels, self.images.keys, self.assigned, probabilities)

    def describe(self, training: Training) -> dict[str, Any]:
        """Describe the folds, and give a training on all images their mean curves."""
        for metric in self.results[0].curves:
            curve = iter(self.mean_curve(metric).tolist())
            for phase in training.phases:
                values = phase.progress.history[metric]
                values[:] = itertools.islice(curve, len(values))
        return {
            "count": len(self.results),
            "epochs": self.epochs,
            "seconds": [result.seconds for result in self.results],
        }


def train_with_folds(
    model: tf_keras.Model, data: TrainingInput, *, folds: int, log_dir: str, checkpoint_dir: str
) -> tuple[Training, Validated]:
    """Train `model` for each fold, then from its first weights on all images."""
    images, initial, shared = SmallSet.read(data), model.get_weights(), Shared()
    if HEAD in full_lengths(data.config):
        _answer_first(model, data, images, folds, shared=shared)
        model.set_weights(initial)
    validated = cross_validate(
        model,
        data,
        images,
        folds=folds,
        log_dir=log_dir,
        checkpoint_dir=checkpoint_dir,
        shared=shared,
    )
    nobody = np.empty(0, np.int64)
    training = Training(
        model,
        images.divide(data, nobody, replicas=model.distribute_strategy.num_replicas_in_sync),
        log_dir=log_dir,
        checkpoint_dir=os.path.join(checkpoint_dir, "all"),
        mode=Mode(validated.lengths, chooses=False, keeps_last=True),
        shared=shared,
    )
    training.run()
    return training, validated


def _answer_first(
    model: tf_keras.Model, data: TrainingInput, images: SmallSet, folds: int, *, shared: Shared
) -> None:
    """Say what a new last layer alone reaches in cross-validation; it takes seconds."""
    assigned, right = images.assign(folds), 0
    whole = images.divide(data, np.empty(0, np.int64), replicas=1)
    seen = Training(model, whole, "", "", shared=shared).see_fixed()
    features, ids = seen.first_views(whole.train)
    for fold in range(folds):
        learned, judged = np.flatnonzero(assigned != fold), np.flatnonzero(assigned == fold)
        weights = images.divide(data, judged, replicas=1).class_weights(model.output_shape[-1])
        predict = fit_head(
            Parts.of(model).head, features[learned], ids[learned], class_weights=weights
        )
        right += int((predict(features[judged]).argmax(axis=1) == ids[judged]).sum())
    report_result(
        f"first answer: accuracy {right / len(assigned):.3f} in cross-validation, by the last "
        f"layer alone"
    )


def cross_validate(
    model: tf_keras.Model,
    data: TrainingInput,
    images: SmallSet,
    *,
    folds: int,
    log_dir: str,
    checkpoint_dir: str,
    shared: Shared | None = None,
    most: int | None = None,
) -> Validated:
    """Train for each fold, unless an interrupted attempt has done so.

    Args:
        model: with the weights that every fold starts from, and which it has again afterwards.
        data: the input of the whole training.
        images: of both splits.
        folds: number of folds.
        log_dir: folder of the TensorBoard logs.
        checkpoint_dir: keeps the result of each fold.
        shared: what the folds of other trainings have left.
        most: folds after which to return; a later call goes on. Only curves can be had from some.
    """
    replicas = model.distribute_strategy.num_replicas_in_sync
    initial, assigned = model.get_weights(), images.assign(folds)
    shared, results = shared or Shared(), []
    for fold in range(folds if most is None else most):
        path = os.path.join(checkpoint_dir, f"fold-{fold}.npz")
        result = FoldResult.load(path)
        if result is None:
            name = f"fold {fold + 1}/{folds}"
            judged = assigned == fold
            part = images.divide(data, np.flatnonzero(judged), replicas=replicas)
            logs = os.path.join(log_dir, "folds", str(fold + 1))
            places = {"log_dir": logs, "checkpoint_dir": checkpoint_dir}
            with naming_fold(f"{name}:"):
                learned = np.unique(images.labels[~judged])
                result = _train_fold(model, part, learned, shared=shared, **places)
            model.set_weights(initial)
            result.save(path)
            report_result(f"{name} {result.seconds:.0f} s")
        results.append(result)
    return Validated(images, assigned, results, data.config)


def _train_fold(
    model: tf_keras.Model, data: TrainingInput, learned: Rows, **places: Any
) -> FoldResult:
    """Train a fold for all epochs; where it diverges, its last epoch is repeated.

    `learned` are the label ids of the images that it is trained on.
    """
    started, recorded = time.perf_counter(), collections.defaultdict[str, list[Logits]](list)

    def judge(phase: str, logits: Logits, ids: NDArray[np.int64]) -> dict[str, float]:
        recorded[phase].append(logits)
        rows = np.isin(ids, learned)
        return measure(logits[rows], ids[rows]) if rows.any() else measure(logits, ids)

    training = Training(model, data, mode=Mode(chooses=False, saves=False, judge=judge), **places)
    training.run()
    lengths = full_lengths(data.config)
    logits: list[Logits] = []
    for phase, most in lengths.items():
        # A second phase may diverge before it predicts anything.
        logits += _lengthen(recorded[phase] or logits[-1:], most)
    histories = [phase.progress.history for phase in training.phases]
    curves = {
        name: [
            value
            for history, most in zip(histories, lengths.values(), strict=True)
            for value in _lengthen(history[name], most)
        ]
        for name in histories[0]
        if name.startswith("val_")
    }
    known: dict[str, Scores] = {}
    for done in training.phases if data.config.export.false_alarms else ():
        if (scores := score_evaluation(training, phase=done.name)) is not None:
            known[done.name] = scores
    return FoldResult(np.stack(logits), curves, time.perf_counter() - started, known)


def _lengthen(values: Sequence[Any], length: int) -> list[Any]:
    """Repeat the last value."""
    return [values[min(epoch, len(values) - 1)] for epoch in range(length)]

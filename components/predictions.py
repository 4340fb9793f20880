"""What the exported model says of the examples of a split, and how good that is."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from sklearn import metrics

from components.example import ENCODED, LABEL
from components.progress import report_progress
from components.shards import read_index

# Images that are decoded at once, of whatever size they are.
_BATCH = 32
# Keras's, so that the loss is the Evaluator's: float32 has probabilities of exactly 0.
_LEAST_PROBABILITY = 1e-7
_MOST_POINTS = 100

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Predictions:
    """The model's answers, one row per example."""

    labels: tuple[str, ...]
    """The text of each column, in the model's order."""
    ids: Ints
    """[examples], the column of the right answer."""
    probabilities: NDArray[np.float32]
    """[examples, classes], each row adds up to 1."""


@dataclass(frozen=True)
class Roc:
    """A receiver operating characteristic from (0, 0) to (1, 1), thinned to its shape."""

    false_positive_rate: Floats
    """[points], never falling."""
    recall: Floats
    """[points], never falling."""
    thresholds: Floats
    """[points], 0 to 1, never rising."""
    area: float
    """Under all points, before they were thinned."""
    positive: str | None
    """The label it is about; None for the micro-average of each class against the rest."""


@dataclass(frozen=True)
class Measures:
    """How good predictions are, in float64."""

    labels: tuple[str, ...]
    """In ascending order: the model's own follows from how frequent the classes were."""
    accuracy: float
    balanced_accuracy: float
    """Mean recall of the classes that the split has."""
    macro_f1: float
    """Mean F1 of the classes that the split has or the model names."""
    loss: float
    """Cross-entropy in nats."""
    confusion: Ints
    """[classes, classes], examples; rows are true, columns predicted."""
    precision: Floats
    """[classes], NaN for a class that the model never names."""
    recall: Floats
    """[classes], NaN for a class that the split does not have."""
    f1: Floats
    """[classes], NaN for a class of neither."""
    roc: Roc | None
    """None where the split has but one of two classes."""

    @property
    def support(self) -> Ints:
        """Examples of each class, [classes]."""
        support: Ints = self.confusion.sum(axis=1)
        return support

    def most_mistaken(self, most: int) -> Ints:
        """Return, in ascending order, the `most` classes that take part in most mistakes."""
        right = np.diag(self.confusion)
        mistakes = self.support + self.confusion.sum(axis=0) - 2 * right
        return np.sort(np.argsort(-mistakes, kind="stable")[:most])


def predict(examples_uri: str, split: str, model_path: str) -> Predictions:
    """Run the exported model on every example of a split, and keep no image.

    Args:
        examples_uri: of ImageExampleGen's examples.
        split: such as "test".
        model_path: folder of a SavedModel with the signatures of `pipeline_def.serving`.

    Raises:
        ValueError: an example has a label that the model does not know.
    """
    # Signatures alone do not keep the model's variables alive.
    model = tf.saved_model.load(model_path)
    shards = read_index(examples_uri)["splits"][split]
    folder = os.path.join(examples_uri, f"Split-{split}")
    records = tf.data.TFRecordDataset([os.path.join(folder, name) for name in sorted(shards)])
    labels: list[bytes] = []
    texts: list[bytes] = []
    batches: list[NDArray[np.float32]] = []
    for batch in records.batch(_BATCH).prefetch(1):
        labels = labels or _read_labels(model, batch[0])
        texts += _read_feature(batch, LABEL).numpy().tolist()
        answer = model.signatures["serving_examples"](examples=batch)
        batches.append(answer["probabilities"].numpy())
        report_progress(done=len(texts), total=sum(shards.values()), unit="images predicted")
    return Predictions(
        labels=tuple(label.decode(errors="replace") for label in labels),
        ids=_find_ids(texts, labels),
        probabilities=np.concatenate(batches),
    )


def _read_feature(serialized: tf.Tensor, name: str) -> tf.Tensor:
    return tf.io.parse_example(serialized, {name: tf.io.FixedLenFeature([], tf.string)})[name]


def _read_labels(model: Any, example: tf.Tensor) -> list[bytes]:
    """Ask the model for its labels, which it tells with the answer to an image."""
    image = _read_feature(example[tf.newaxis], ENCODED)
    answer = model.signatures["serving_default"](image_bytes=image)
    labels: list[bytes] = answer["labels"][0].numpy().tolist()
    return labels


def _find_ids(texts: list[bytes], labels: list[bytes]) -> Ints:
    columns = {label: column for column, label in enumerate(labels)}
    if unknown := sorted(set(texts) - columns.keys()):
        raise ValueError(f"The model does not know the label {unknown[0]!r} of the examples.")
    return np.array([columns[text] for text in texts], np.int64)


def measure(predictions: Predictions) -> Measures:
    """Compare the most probable class of each example, the first of equals, with its label."""
    ids, probabilities = predictions.ids, predictions.probabilities
    predicted = probabilities.argmax(axis=1)
    columns = _sort_columns(predictions.labels)
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(
        ids, predicted, labels=columns, zero_division=np.nan
    )
    return Measures(
        labels=tuple(predictions.labels[column] for column in columns),
        accuracy=float(metrics.accuracy_score(ids, predicted)),
        balanced_accuracy=float(np.nanmean(recall)),
        macro_f1=float(np.nanmean(f1)),
        loss=_cross_entropy(ids, probabilities),
        confusion=metrics.confusion_matrix(ids, predicted, labels=columns),
        precision=precision,
        recall=recall,
        f1=f1,
        roc=_make_roc(predictions),
    )


def _sort_columns(labels: tuple[str, ...]) -> list[int]:
    return sorted(range(len(labels)), key=labels.__getitem__)


def _cross_entropy(ids: Ints, probabilities: NDArray[np.float32]) -> float:
    of_truth = probabilities[np.arange(len(ids)), ids] / probabilities.sum(axis=1, dtype=np.float64)
    return float(-np.log(of_truth.clip(_LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)).mean())


def _make_roc(predictions: Predictions) -> Roc | None:
    """Take the second of two classes as the positive one, else average one-vs-rest."""
    ids, probabilities = predictions.ids, predictions.probabilities
    binary = len(predictions.labels) == 2
    positive = _sort_columns(predictions.labels)[1]
    truth = ids == positive if binary else np.eye(len(predictions.labels), dtype=bool)[ids].ravel()
    if truth.all() or not truth.any():
        return None
    scores = probabilities[:, positive] if binary else probabilities.ravel()
    thresholds, false_positive_rate, recall = _find_corners(truth, scores)
    kept = _thin(false_positive_rate, recall)
    return Roc(
        false_positive_rate[kept],
        recall[kept],
        thresholds[kept],
        area=float(metrics.auc(false_positive_rate, recall)),
        positive=predictions.labels[positive] if binary else None,
    )


def _find_corners(
    truth: NDArray[np.bool_], scores: NDArray[np.float32]
) -> tuple[Floats, Floats, Floats]:
    """Return threshold, false positive rate and recall, [points] each; straight between them.

    scikit-learn's `roc_curve` gives the same curve; it takes a minute for the scores of 50,000
    examples and 1,000 classes, as it orders examples, not numbers.
    """
    highest_first = np.unique(scores[truth])[::-1]
    rates = []
    for of_kind in (np.sort(scores[~truth]), np.sort(scores[truth])):
        # How many lie below, first for just above the threshold, then for the threshold itself.
        below = [np.searchsorted(of_kind, highest_first, side) for side in ("right", "left")]
        shares = (len(of_kind) - np.stack(below, axis=1).ravel()) / len(of_kind)
        rates.append(np.concatenate([[0.0], shares, [1.0]]))
    # A first threshold of infinity would be exact, but JSON has no such number.
    inner = np.repeat(highest_first, 2).astype(np.float64).clip(0, 1)
    return np.concatenate([[1.0], inner, [0.0]]), rates[0], rates[1]


def _thin(x: Floats, y: Floats, most: int = _MOST_POINTS) -> Ints:
    """Return the points of a rising curve that keep its shape: the farthest off it, in turn."""
    # Turned by 45 degrees, the staircase is a function: it has no vertical steps.
    along, height = x + y, y - x
    kept = np.array([0, len(x) - 1])
    while len(kept) < most:
        distance = np.abs(height - np.interp(along, along[kept], height[kept]))
        farthest = distance.argmax()
        if distance[farthest] < 1e-9:
            break
        kept = np.sort(np.append(kept, farthest))
    return kept

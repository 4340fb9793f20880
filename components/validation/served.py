"""Compare a window of served answers with the images that the model was trained and judged on.

Sizes, brightness and labels are compared as the splits of a run are: by TFDV, with the schema's
thresholds. These tell large changes. Predictions and pixels are also compared with those of the
split that judged the model by a permutation test, which finds changes of a part of the traffic.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from tensorflow_metadata.proto.v0 import schema_pb2

from components.contract.anomalies import Anomaly, list_anomalies
from components.contract.example import LABEL
from components.validation.anomalies import Reference
from components.validation.comparison import summarize, validate
from components.validation.feature_statistics import Statistics

Floats = NDArray[np.floating[Any]]

FALSE_ALARMS = 0.0005
"""Probability that the permutation test finds a change in a window of unchanged images. The rest of
one alarm in 1,000 windows is left to the thresholds of the schema."""

_PERMUTATIONS = 3999
_CHUNK = 500
# Of more images the test would take seconds and gain nothing.
_MOST_JUDGED = 5000
# In standard errors. Of unchanged windows only a few reach it, so the permutations are rarely
# needed; below it they could not call a change unlikely enough.
_CANDIDATE = 3.0
_MOST_NAMED = 5
_RANKS = ("largest probability", "second largest probability", "third largest probability")
_EDGES = (0.05, 0.1, 0.2, 0.4)
# More labels would take seconds and gain little.
_MOST_LABELS = 100


@dataclass(frozen=True)
class Images:
    """Images with what the model says of them, a row each."""

    labels: Sequence[str]
    """Label of each column of the probabilities."""
    probabilities: Floats
    """[rows, classes]."""
    pixels: Mapping[str, Floats]
    """Statistic of `measure_pixels` → its values."""
    properties: Mapping[str, Floats]
    """Feature, such as `image/height` → its values."""

    @functools.cached_property
    def predicted(self) -> list[str]:
        """The most probable label of each image."""
        return [self.labels[column] for column in self.probabilities.argmax(axis=1)]


def compare_served(
    window: Images,
    judged: Images,
    *,
    split: str,
    schema: schema_pb2.Schema,
    train: Statistics,
    seed: int = 0,
) -> list[Anomaly]:
    """Return how a window of served images differs from those of the run that made the model.

    Args:
        window: served images.
        judged: images of the split that judged the model; only their predictions and pixels count.
        split: name of that split.
        schema: of the run.
        train: statistics of its train split.
        seed: of the permutations.
    """
    columns: dict[str, Any] = dict(window.properties)
    found = _validate(columns, schema, Reference("skew", "in train", train))
    there = summarize({LABEL: judged.predicted})
    reference = Reference("skew", f"among the predictions for {split}", there)
    found += _validate({LABEL: window.predicted}, schema, reference)
    return found + find_shift(window, judged, split=split, seed=seed)


def _validate(
    columns: Mapping[str, Any], schema: schema_pb2.Schema, reference: Reference
) -> list[Anomaly]:
    """Compare columns with the reference by the drift thresholds of their features."""
    wanted = schema_pb2.Schema()
    for feature in schema.feature:
        if feature.name in columns:
            compared = wanted.feature.add(name=feature.name, type=feature.type)
            compared.skew_comparator.CopyFrom(feature.skew_comparator)
            if feature.type == schema_pb2.INT:
                columns = {**columns, feature.name: columns[feature.name].astype(np.int64)}
    anomalies = validate(summarize(columns), wanted, reference)
    return [one for one in list_anomalies(anomalies, "served") if one.kind == "drift"]


def find_shift(window: Images, judged: Images, *, split: str, seed: int) -> list[Anomaly]:
    """Find columns whose mean, or mean rank, differs from that of the judged images.

    The largest difference of all columns, in standard errors, is compared with that of random
    divisions of the same images (Westfall and Young 1993), so `FALSE_ALARMS` holds for all columns
    together, whatever their distribution.
    """
    random = np.random.default_rng(seed)
    columns, count = _describe(window, judged), len(window.probabilities)
    kept = random.permutation(len(judged.probabilities))[:_MOST_JUDGED]
    columns = [replace(column, there=column.there[kept]) for column in columns]
    values = np.stack([column.scale() for column in columns], axis=1)
    # Sums over the window; those over the rest are their negatives.
    factor = np.sqrt(len(values) / (count * (len(values) - count)))
    found = np.abs(values[:count].sum(axis=0)) * factor
    if found.max() < _CANDIDATE:
        return []
    largest = [found.max()]
    for start in range(0, _PERMUTATIONS, _CHUNK):
        chosen = np.zeros((min(_CHUNK, _PERMUTATIONS - start), len(values)), np.float32)
        for row in chosen:
            row[random.permutation(len(values))[:count]] = 1
        largest += (np.abs(chosen @ values).max(axis=1) * factor).tolist()
    limit = np.sort(largest)[::-1][int(FALSE_ALARMS * len(largest))]
    order = [columns[number] for number in np.argsort(-found) if found[number] > limit]
    by_subject = {column.subject: column for column in reversed(order)}
    named = [column for column in order if by_subject[column.subject] is column]
    return [one.explain(split) for one in named[:_MOST_NAMED]]


@dataclass(frozen=True)
class _Column:
    """A fact about every image, of the window and of the judged images."""

    subject: str
    """A label, or what the fact is about."""
    name: str
    here: NDArray[Any]
    there: NDArray[Any]
    is_share: bool = False
    is_ranked: bool = False

    def scale(self) -> NDArray[np.float32]:
        """Return the values of all images, or their ranks, with mean 0 and deviation 1."""
        values = np.concatenate([self.here, self.there]).astype(np.float64)
        if self.is_ranked:
            values = rankdata(values)
        values -= values.mean()
        return np.asarray(values / max(values.std(), 1e-9), np.float32)

    def explain(self, split: str) -> Anomaly:
        """Say how the two differ."""
        here, there = float(self.here.mean()), float(self.there.mean())
        if self.is_share:
            text = f"{here:.1%} of the images, {there:.1%} of {split}"
        else:
            text = f"{here:.3g} on average, in {split} {there:.3g}"
        return Anomaly("served", self.name, text, "drift")


def _describe(window: Images, judged: Images) -> list[_Column]:
    """Return what is compared.

    A new class changes how often a probability is moderate, which neither its mean nor the
    predicted label shows well.
    """
    here, there = (of.probabilities.astype(np.float64) for of in (window, judged))
    best = [scores.argmax(axis=1) for scores in (here, there)]
    columns = []
    for number in np.argsort(-there.mean(axis=0))[:_MOST_LABELS].tolist():
        label, pair = window.labels[number], (here[:, number], there[:, number])
        name = f"probability of {label}"
        is_best = f"prediction {label}"
        columns.append(_Column(label, is_best, best[0] == number, best[1] == number, is_share=True))
        columns.append(_Column(label, name, *pair))
        columns.append(_Column(label, f"root of the {name}", np.sqrt(pair[0]), np.sqrt(pair[1])))
        for edge in _EDGES:
            above = f"{name} above {edge}"
            columns.append(_Column(label, above, pair[0] > edge, pair[1] > edge, is_share=True))
    for rank, name in enumerate(_RANKS[: here.shape[1]]):
        ranked = [np.sort(scores, axis=1)[:, -1 - rank] for scores in (here, there)]
        columns.append(_Column(name, name, ranked[0], ranked[1]))
    entropies = [-(p * np.log(np.maximum(p, 1e-12))).sum(axis=1) for p in (here, there)]
    columns.append(_Column("entropy", "entropy of the probabilities", entropies[0], entropies[1]))
    for name, values in window.pixels.items():
        columns.append(_Column(name, name, values, judged.pixels[name], is_ranked=True))
    return columns

"""TFMA metrics of classification, computed from the same counts as the report's.

TFMA's own precision, recall and F1 of many classes are of binary decisions at a threshold of 0.5,
not of the most probable class, and its area under the curve is an approximation by thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma
from numpy.typing import NDArray
from tensorflow_model_analysis.metrics import metric_types, metric_util
from tensorflow_model_analysis.proto import config_pb2

from components.evaluation.metrics.curves import mean_auc
from components.evaluation.metrics.metric_counts import MetricCounts
from components.evaluation.metrics.predictions import Answers

# Examples that are counted at once: one by one takes ten times as long.
_CHUNK = 256
_COUNTS = "_counts"


class _Rows:
    """Metric counts, and predictions that are not counted yet."""

    def __init__(self) -> None:
        self.counts = MetricCounts()
        self.ids: list[int] = []
        self.probabilities: list[NDArray[np.float32]] = []

    def as_arrays(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        return np.array(self.ids, np.int64), np.stack(self.probabilities)

    def count(self) -> MetricCounts:
        if self.ids:
            self.counts += MetricCounts.of(Answers.of(*self.as_arrays()))
            self.ids, self.probabilities = [], []
        return self.counts


class _CollectRows(beam.CombineFn):
    """Collects predictions; the label is -1 where the model does not know it."""

    def __init__(self, key: Any, eval_config: config_pb2.EvalConfig) -> None:
        self._key = key
        self._eval_config = eval_config

    def create_accumulator(self) -> _Rows:
        return _Rows()

    def add_input(self, rows: _Rows, element: Any) -> _Rows:
        for label, probabilities, _ in metric_util.to_label_prediction_example_weight(
            element, self._eval_config, model_name=self._key.model_name, flatten=False
        ):
            rows.ids.append(int(label.reshape(-1)[0]))
            rows.probabilities.append(probabilities.reshape(-1))
        return rows

    def merge_accumulators(self, accumulators: Iterable[_Rows]) -> _Rows:
        merged = _Rows()
        for rows in accumulators:
            merged.counts += rows.counts
            merged.ids += rows.ids
            merged.probabilities += rows.probabilities
        return merged

    def extract_output(self, rows: _Rows) -> dict[Any, Any]:
        return {self._key: mean_auc(*rows.as_arrays()) if rows.ids else math.nan}


class _CountRows(_CollectRows):
    """Counts predictions as they come, so that few are held in memory."""

    def add_input(self, rows: _Rows, element: Any) -> _Rows:
        super().add_input(rows, element)
        return self.compact(rows) if len(rows.ids) >= _CHUNK else rows

    def compact(self, rows: _Rows) -> _Rows:
        rows.count()
        return rows

    def extract_output(self, rows: _Rows) -> dict[Any, Any]:
        return {self._key: rows.count().scalars()}


def _count(name: str, eval_config: Any = None, model_name: str = "") -> Any:
    """Return what TFMA has to compute for a metric that follows from counts."""
    key, hidden = (metric_types.MetricKey(of, model_name=model_name) for of in (name, _COUNTS))
    pick = metric_types.DerivedMetricComputation(
        keys=[key], result=lambda metrics: {key: metrics[hidden][name]}
    )
    # TFMA computes equal keys once, so that all these metrics share the counts.
    return [_compute(hidden, _CountRows(hidden, eval_config)), pick]


def _collect(name: str, eval_config: Any = None, model_name: str = "") -> Any:
    key = metric_types.MetricKey(name, model_name=model_name)
    return [_compute(key, _CollectRows(key, eval_config))]


def _compute(key: Any, combiner: beam.CombineFn) -> Any:
    return metric_types.MetricComputation(keys=[key], preprocessors=None, combiner=combiner)


class Counted(tfma.metrics.Metric):
    """A metric of `components.evaluation.metrics.metric_counts`, by its name there."""

    def __init__(self, name: str) -> None:
        """Compute `name`, one of the keys of `MetricCounts.scalars`."""
        super().__init__(metric_util.merge_per_key_computations(_count), name=name)


class MeanAuc(tfma.metrics.Metric):
    """Mean over the classes of the area under the ROC curve, each against the rest.

    It holds all predictions in memory, once for each slicing; NaN on slices of one class.
    """

    def __init__(self, name: str) -> None:
        """Name it `name`."""
        super().__init__(metric_util.merge_per_key_computations(_collect), name=name)


for _metric in (Counted, MeanAuc):
    metric_types.register_metric(_metric)

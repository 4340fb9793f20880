"""TFMA metrics of classification, computed from the same counts as the report's.

TFMA's own precision, recall and F1 of many classes are of binary decisions at a threshold of 0.5,
not of the most probable class, and its area under the curve is an approximation by thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma
from numpy.typing import NDArray
from tensorflow_model_analysis.metrics import metric_types, metric_util

from components.evaluation.curves import mean_auc
from components.evaluation.metric_counts import MetricCounts

# Rows that are counted at once: one by one takes ten times as long.
_CHUNK = 256
_TALLY = "_tally"


class _Rows(NamedTuple):
    """Answers that are yet to be counted; the label is -1 where the model does not know it."""

    ids: list[int]
    probabilities: list[NDArray[np.float32]]

    def add(self, element: Any, model_name: str, eval_config: tfma.EvalConfig) -> None:
        for label, answer, _ in metric_util.to_label_prediction_example_weight(
            element, eval_config=eval_config, model_name=model_name, flatten=False
        ):
            self.ids.append(int(label.reshape(-1)[0]))
            self.probabilities.append(answer.reshape(-1))

    def as_arrays(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        return np.array(self.ids, np.int64), np.stack(self.probabilities)


class _Counts:
    """A tally, and rows that are not in it yet."""

    def __init__(self, tally: MetricCounts) -> None:
        self.tally = tally
        self.rows = _Rows([], [])

    def settle(self) -> MetricCounts:
        """Count the rows that wait."""
        if self.rows.ids:
            self.tally = self.tally + MetricCounts.of(*self.rows.as_arrays())
            self.rows = _Rows([], [])
        return self.tally


class _Combiner(beam.CombineFn):
    """What the combiners below share: where a model's answers are found."""

    def __init__(self, key: Any, eval_config: tfma.EvalConfig) -> None:
        self._key = key
        self._eval_config = eval_config


class _CountExamples(_Combiner):
    def create_accumulator(self) -> _Counts:
        return _Counts(MetricCounts())

    def add_input(self, accumulator: _Counts, element: Any) -> _Counts:
        accumulator.rows.add(element, self._key.model_name, self._eval_config)
        if len(accumulator.rows.ids) >= _CHUNK:
            accumulator.settle()
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[_Counts]) -> _Counts:
        total = MetricCounts()
        for accumulator in accumulators:
            total = total + accumulator.settle()
        return _Counts(total)

    def compact(self, accumulator: _Counts) -> _Counts:
        accumulator.settle()
        return accumulator

    def extract_output(self, accumulator: _Counts) -> dict[Any, Any]:
        return {self._key: accumulator.settle().scalars()}


class _CollectAnswers(_Combiner):
    def create_accumulator(self) -> _Rows:
        return _Rows([], [])

    def add_input(self, accumulator: _Rows, element: Any) -> _Rows:
        accumulator.add(element, self._key.model_name, self._eval_config)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[_Rows]) -> _Rows:
        merged = _Rows([], [])
        for accumulator in accumulators:
            merged.ids.extend(accumulator.ids)
            merged.probabilities.extend(accumulator.probabilities)
        return merged

    def extract_output(self, accumulator: _Rows) -> dict[Any, float]:
        return {self._key: mean_auc(*accumulator.as_arrays()) if accumulator.ids else math.nan}


def _count(
    name: str, eval_config: Any = None, model_name: str = "", output_name: str = "", **_: Any
) -> Any:
    """Return what TFMA has to compute for a metric that a tally tells."""
    hidden = metric_types.MetricKey(_TALLY, model_name=model_name, output_name=output_name)
    key = metric_types.MetricKey(name, model_name=model_name, output_name=output_name)
    # TFMA computes equal keys once, so that all these metrics share one tally.
    tally = metric_types.MetricComputation(
        keys=[hidden], preprocessors=None, combiner=_CountExamples(hidden, eval_config)
    )
    pick = metric_types.DerivedMetricComputation(
        keys=[key], result=lambda metrics: {key: metrics[hidden][name]}
    )
    return [tally, pick]


def _collect(
    name: str, eval_config: Any = None, model_name: str = "", output_name: str = "", **_: Any
) -> Any:
    key = metric_types.MetricKey(name, model_name=model_name, output_name=output_name)
    return [
        metric_types.MetricComputation(
            keys=[key], preprocessors=None, combiner=_CollectAnswers(key, eval_config)
        )
    ]


class Counted(tfma.metrics.Metric):
    """A metric of `components.evaluation.metric_counts`, by its name there."""

    def __init__(self, name: str) -> None:
        """Compute `name`, one of the keys of `MetricCounts.scalars`."""
        super().__init__(metric_util.merge_per_key_computations(_count), name=name)


class MeanAuc(tfma.metrics.Metric):
    """Mean over the classes of the area under the ROC curve, each against the rest.

    It holds every answer in memory, once for each slicing; NaN on slices of one class.
    """

    def __init__(self, name: str) -> None:
        """Name it `name`."""
        super().__init__(metric_util.merge_per_key_computations(_collect), name=name)


for _metric in (Counted, MeanAuc):
    metric_types.register_metric(_metric)

"""Predictions for more examples than have room in memory: all statistics, some probabilities."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from components.evaluation.metrics.predictions import Ints, Predictions, PredictionStats
from components.evaluation.metrics.score_histogram import ScoreHistogram


@dataclass(frozen=True)
class SampledPredictions(Predictions):
    """Predictions whose `probabilities` are those of the examples `rows` only."""

    rows: Ints
    """[held], ascending."""
    histogram: ScoreHistogram | None
    """Of the probabilities of all examples; None for the examples of a subset."""
    statistics: PredictionStats
    """Of all examples."""

    @classmethod
    def of(cls, batches: Iterable[Predictions], rows: Ints) -> Self:
        """Keep the probabilities of the examples `rows`, ascending, of consecutive batches."""
        histogram, stats, kept, done = None, [], np.empty((len(rows), 0), np.float32), 0
        for batch in batches:
            if histogram is None:
                histogram = ScoreHistogram(len(batch.labels))
                kept = np.empty((len(rows), len(batch.labels)), np.float32)
            histogram.add(batch.ids, batch.probabilities)
            first, last = np.searchsorted(rows, [done, done + len(batch.ids)])
            kept[first:last] = batch.probabilities[rows[first:last] - done]
            stats.append(batch.stats)
            done += len(batch.ids)
        statistics = PredictionStats.concatenate(stats)
        return cls(batch.labels, statistics.truth, kept, rows, histogram, statistics)

    def take(self, rows: Ints) -> Predictions:
        """Return the predictions for some of the examples, `rows` in ascending order."""
        shared = np.isin(self.rows, rows)
        return SampledPredictions(
            self.labels,
            self.ids[rows],
            self.probabilities[shared],
            np.searchsorted(rows, self.rows[shared]),
            None,
            self.statistics.take(rows),
        )

    @property
    def stats(self) -> PredictionStats:
        """Statistics of all examples."""
        return self.statistics

    @cached_property
    def held(self) -> Predictions:
        """Predictions for the examples whose probabilities are in memory."""
        return Predictions(self.labels, self.ids[self.rows], self.probabilities)


def drop_probabilities(model: Predictions) -> Predictions:
    """Return the predictions with the statistics of all examples, but without probabilities."""
    none = np.empty(0, np.int64)
    return SampledPredictions(
        model.labels, model.ids, model.probabilities[:0].copy(), none, None, model.stats
    )

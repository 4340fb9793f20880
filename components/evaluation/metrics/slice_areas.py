"""The area under the ROC curve on slices, which does not follow from counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from components.evaluation.metrics.curves import mean_auc
from components.evaluation.metrics.predictions import Predictions
from components.evaluation.metrics.sliced_counts import EVERYTHING, Place


def measure_slice_areas(
    predictions: Predictions, slices: Mapping[str, Sequence[str]]
) -> dict[Place, float]:
    """Return `mean_auc` of all examples and of each slice; NaN on slices of one class.

    Args:
        predictions: of a model.
        slices: slicing → the value of each example.
    """
    areas = {EVERYTHING: mean_auc(predictions.ids, predictions.probabilities)}
    for slicing, texts in slices.items():
        values, of_example = np.unique(np.array(texts, object), return_inverse=True)
        order = np.argsort(of_example, kind="stable")
        ends = np.searchsorted(of_example[order], np.arange(1, len(values)))
        for value, rows in zip(values, np.split(order, ends), strict=True):
            area = mean_auc(predictions.ids[rows], predictions.probabilities[rows])
            areas[slicing, value] = area
    return areas

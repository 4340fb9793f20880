"""What TFMA does between predictions and metrics: adds the slices, keeps the predictions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.constants import BASELINE_KEY, CANDIDATE_KEY

from components.contract.example import ENCODED, FILENAME, LABEL
from components.evaluation.prediction_file import (
    BASELINE_PROBABILITIES,
    PROBABILITIES,
    write_part,
)
from components.evaluation.slices import describe_slices

# Rows that a worker collects, as bytes of probabilities, before it writes them.
_MOST_BYTES = 2**26
_INPUT = "input"

# TFX's hook for extractors is not told where the outputs go.
_evaluation_uri: ContextVar[str] = ContextVar("_evaluation_uri")


@contextlib.contextmanager
def keep_predictions(evaluation_uri: str) -> Iterator[None]:
    """Say where extractors that are made within this block keep the predictions."""
    token = _evaluation_uri.set(evaluation_uri)
    try:
        yield
    finally:
        _evaluation_uri.reset(token)


def make_extractors(
    eval_shared_model: Any, eval_config: tfma.EvalConfig, tensor_adapter_config: Any
) -> list[Any]:
    """Return TFMA's own extractors with ours before the last one, which finds the slices."""
    *first, slice_keys = tfma.default_extractors(
        eval_shared_model=eval_shared_model,
        eval_config=eval_config,
        tensor_adapter_config=tensor_adapter_config,
    )
    keep = beam.ParDo(_KeepPredictions(_evaluation_uri.get()))
    ours = tfma.extractors.Extractor(stage_name="KeepPredictions", ptransform=keep)
    return [*first, ours, slice_keys]


def _add_slices(extracts: dict[str, Any], slices: dict[str, str]) -> dict[str, Any]:
    """Add the slices, and drop the image, which nothing after the models needs."""
    features = {k: v for k, v in extracts[tfma.FEATURES_KEY].items() if k != ENCODED}
    for name, value in slices.items():
        # TFMA takes text only, while names of files may be any bytes.
        features[name] = np.array([value.encode("utf-8", "replace")], object)
    return {**extracts, _INPUT: np.array([b""], object), tfma.FEATURES_KEY: features}


class _KeepPredictions(beam.DoFn):
    """Writes the predictions of a bundle, in parts of bounded size, and passes the examples on."""

    def __init__(self, evaluation_uri: str) -> None:
        super().__init__()
        self._evaluation_uri = evaluation_uri

    def start_bundle(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0

    def process(self, extracts: dict[str, Any]) -> Iterable[dict[str, Any]]:
        slices = describe_slices(extracts[tfma.FEATURES_KEY])
        row = _make_row(extracts, slices)
        self._rows.append(row)
        self._bytes += row[PROBABILITIES].nbytes
        if self._bytes > _MOST_BYTES:
            self._flush()
        yield _add_slices(extracts, slices)

    def finish_bundle(self) -> None:
        self._flush()

    def _flush(self) -> None:
        if self._rows:
            write_part(self._evaluation_uri, self._rows)
        self.start_bundle()


def _make_row(extracts: dict[str, Any], slices: dict[str, str]) -> dict[str, Any]:
    features, predictions = extracts[tfma.FEATURES_KEY], extracts[tfma.PREDICTIONS_KEY]
    # TFMA names the model only where there are two.
    by_model = predictions if isinstance(predictions, dict) else {CANDIDATE_KEY: predictions}
    row = {
        "filename": features[FILENAME][0],
        "label": features[LABEL][0],
        **{name: value.encode("utf-8", "surrogateescape") for name, value in slices.items()},
        PROBABILITIES: by_model[CANDIDATE_KEY],
    }
    if BASELINE_KEY in by_model:
        row[BASELINE_PROBABILITIES] = by_model[BASELINE_KEY]
    return row

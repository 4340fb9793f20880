import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from components.metrics.metric_table import METRICS
from components.report.card import write_card
from components.report.metrics_file import write_metrics
from components.report.page.document import render
from tests.report.conftest import words
from tests.report.samples.report_sample import small


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(write_metrics(small()))
    return facts


def test_every_metric_with_interval_baseline_and_change(report: dict[str, Any]) -> None:
    comparison = small().comparison
    assert tuple(report["metrics"]) == tuple(comparison.metrics.scalars)
    assert set(report["metrics"]) == set(METRICS)
    assert comparison.baseline
    for name, entry in report["metrics"].items():
        assert entry["value"] == pytest.approx(comparison.metrics.scalars[name])
        assert entry["baseline"] == pytest.approx(comparison.baseline.scalars[name])
        for key, known in (("interval", comparison.intervals), ("change", comparison.changes)):
            interval = known.get(name)
            assert entry[key] == ([interval.low, interval.high] if interval else None)


def test_classes_and_pairs_add_up_to_the_examples(report: dict[str, Any]) -> None:
    measures = small().comparison.metrics
    assert list(report["per_class"]) == list(measures.labels)
    counts = [entry["examples"] for entry in report["per_class"].values()]
    assert sum(counts) == report["examples"] == measures.confusion.sum()
    assert sum(count for _, _, count in report["confusion"]) == report["examples"]
    bins = [entry["examples"] for entry in report["calibration"]]
    assert bins == [bin_.examples for bin_ in measures.reliability]
    assert len(report["slices"]) == len(small().comparison.slices)


def test_facts_about_the_model(report: dict[str, Any]) -> None:
    expected = {"name": "cnn", "size": 32, "weights": "none", "images_per_second": 1548}
    assert report["model"] == {**expected, **small().model}


def test_undefined_numbers_are_null() -> None:
    facts = small()
    measures = facts.comparison.metrics
    without = dataclasses.replace(
        measures,
        scalars={**measures.scalars, "auc": np.nan},
        precision=np.full(len(measures.labels), np.nan),
    )
    comparison = dataclasses.replace(facts.comparison, metrics=without, baseline=None)
    report = json.loads(write_metrics(dataclasses.replace(facts, comparison=comparison)))
    assert report["metrics"]["auc"]["value"] is None
    assert {entry["precision"] for entry in report["per_class"].values()} == {None}
    assert report["metrics"]["accuracy"]["baseline"] is None


@pytest.mark.parametrize(
    ("split", "folds", "selection", "optimistic"),
    [("eval", 0, "eval", True), ("test", 0, "eval", False), ("test", 5, "5 folds", False)],
)
def test_the_roles_of_splits(split: str, folds: int, selection: str, optimistic: bool) -> None:
    facts = dataclasses.replace(small(), split=split, selection_folds=folds)
    report = json.loads(write_metrics(facts))
    assert ("slightly optimistic" in write_card(facts)) == optimistic
    assert (report["split"], report["selection_split"]) == (split, selection)
    assert (report["folds"], report["optimistic"]) == (0, optimistic)
    if split == "test":
        weights = (
            "best on 5 folds of them" if folds else "The weights were selected on the eval split"
        )
        assert f"{weights}; the scores are from the test split" in facts.roles_of_splits


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_cross_validation_is_named_wherever_scores_are() -> None:
    facts = dataclasses.replace(small(), split="5 folds", selection_folds=5, unknowns=None)
    report = json.loads(write_metrics(facts))
    assert (report["folds"], report["optimistic"]) == (5, False)
    for text in (words(render(facts)), write_card(facts)):
        assert "cross-validated over 5 folds" in text
        assert "trained on all" in text
        assert "the 5 folds split" not in text
        assert "the eval split" not in text

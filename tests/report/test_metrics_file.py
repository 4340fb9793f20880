import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from components.metrics.metric_table import METRICS
from components.report.card import write_card
from components.report.facts import ExportedModel
from components.report.metrics_file import write_metrics
from components.report.page.document import render
from tests.report.conftest import words
from tests.report.samples.report_sample import small


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(write_metrics(small()))
    return facts


def test_every_metric_with_interval_baseline_and_change(found: dict[str, Any]) -> None:
    comparison = small().comparison
    assert tuple(found["metrics"]) == tuple(comparison.metrics.scalars)
    assert set(found["metrics"]) == set(METRICS)
    assert comparison.baseline
    for name, entry in found["metrics"].items():
        assert entry["value"] == pytest.approx(comparison.metrics.scalars[name])
        assert entry["baseline"] == pytest.approx(comparison.baseline.scalars[name])
        for key, known in (("interval", comparison.intervals), ("change", comparison.changes)):
            interval = known.get(name)
            assert entry[key] == ([interval.low, interval.high] if interval else None)


def test_classes_and_pairs_add_up_to_the_examples(found: dict[str, Any]) -> None:
    measures = small().comparison.metrics
    assert list(found["per_class"]) == list(measures.labels)
    counts = [entry["examples"] for entry in found["per_class"].values()]
    assert sum(counts) == found["examples"] == measures.confusion.sum()
    assert sum(count for _, _, count in found["confusion"]) == found["examples"]
    bins = [entry["examples"] for entry in found["calibration"]]
    assert bins == [of.examples for of in measures.reliability]
    assert len(found["slices"]) == len(small().comparison.slices)


def test_facts_about_the_model() -> None:
    exported = ExportedModel(parameters=131_402, bytes=720_000)
    facts = dataclasses.replace(small(), model=exported)
    assert json.loads(write_metrics(facts))["model"] == {
        "name": "cnn",
        "size": 32,
        "weights": "none",
        "parameters": 131_402,
        "bytes": 720_000,
        "images_per_second": 1548,
    }


def test_undefined_numbers_are_null() -> None:
    facts = small()
    measures = facts.comparison.metrics
    without = dataclasses.replace(
        measures,
        scalars={**measures.scalars, "auc": np.nan},
        precision=np.full(len(measures.labels), np.nan),
    )
    comparison = dataclasses.replace(facts.comparison, metrics=without, baseline=None)
    found = json.loads(write_metrics(dataclasses.replace(facts, comparison=comparison)))
    assert found["metrics"]["auc"]["value"] is None
    assert {entry["precision"] for entry in found["per_class"].values()} == {None}
    assert found["metrics"]["accuracy"]["baseline"] is None


@pytest.mark.parametrize(
    ("split", "folds", "selection", "optimistic"),
    [("eval", 0, "eval", True), ("test", 0, "eval", False), ("test", 5, "5 folds", False)],
)
def test_the_roles_of_splits(split: str, folds: int, selection: str, optimistic: bool) -> None:
    facts = dataclasses.replace(small(), split=split, selection_folds=folds)
    found = json.loads(write_metrics(facts))
    assert ("slightly optimistic" in write_card(facts)) == optimistic
    assert (found["split"], found["selection_split"]) == (split, selection)
    assert (found["folds"], found["optimistic"]) == (0, optimistic)
    if split == "test":
        weights = (
            "best on 5 folds of them" if folds else "The weights were selected on the eval split"
        )
        assert f"{weights}; the scores are from the test split" in facts.roles_of_splits


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_cross_validation_is_named_wherever_scores_are() -> None:
    facts = dataclasses.replace(small(), split="5 folds", selection_folds=5, unknowns=None)
    found = json.loads(write_metrics(facts))
    assert (found["folds"], found["optimistic"]) == (5, False)
    for text in (words(render(facts)), write_card(facts)):
        assert "cross-validated over 5 folds" in text
        assert "trained on all" in text
        assert "the 5 folds split" not in text
        assert "the eval split" not in text

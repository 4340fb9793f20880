"""A small but complete run, with labels that break what does not expect them."""

from __future__ import annotations

from components.evaluation.verdict import Outcome, Verdict
from components.report.facts import DuplicateImage, PredictedImage, Reject, ReportFacts, RunHeader
from tests.evaluation.metrics_sample import make_comparison

NASTY_LABELS = (
    "a|b",
    "<script>alert(1)</script>",
    "`code` and ```fence```",
    "[link](http://example.com) *bold* _it_",
    "two\nlines",
    "# heading",
    "back\\slash",
    "byte \udcff",
    "---",
    "قطة",
)

_HEADER = RunHeader(
    pipeline="images",
    data="/data/<photos>|of `2024`",
    fingerprint="files:120,sha256:0123456789abcdef",
    span=3,
    version=None,
    code="0123456789abcdef",
    config={
        "transform": {"size": 32, "storage": "jpeg"},
        "model": {"name": "cnn", "weights": "none", "dropout": 0.2},
        "training": {"epochs": 2, "seed": 0, "note": "``` *x*"},
    },
    versions={"tensorflow": "2.16.2", "tfx": "1.16.0"},
    started="2026-01-02T03:04:05+00:00",
    training_seconds=150.0,
)


def make_facts(
    labels: tuple[str, ...] = NASTY_LABELS,
    *,
    each: int = 12,
    baseline: bool = True,
    outcome: Outcome = "blessed",
) -> ReportFacts:
    """Return the facts of a run on `labels`, with `each` images of each to evaluate on."""
    labels = tuple(sorted(labels))
    counts = {label: 4 * each + place for place, label in enumerate(labels)}
    return ReportFacts(
        header=_HEADER,
        split="eval",
        verdict=Verdict(
            outcome,
            "Blessed: good." if outcome == "blessed" else "Not blessed: bad.",
            ["accuracy 0.700 reaches 0.100, the majority-class accuracy"],
        ),
        majority_accuracy=1 / len(labels),
        balance={"eval": dict.fromkeys(labels, each), "train": counts},
        files={
            "files": 500,
            "examples": 480,
            "rejected": 1,
            "skipped": 0,
            "duplicates": 2,
            "label_conflicts": 1,
            "in_several_splits": 1,
        },
        anomalies={"eval": ["image/format: unexpected value <gif>"], "train": []},
        history={"loss": (1.0, 0.5), "val_loss": (1.1, 0.6)},
        comparison=make_comparison(labels, each=each, accuracy=0.7, compared=baseline),
        rejects=(Reject(f"{labels[0]}/0.jpg", "broken", "no image", None),),
        duplicates=(DuplicateImage(("x/1.jpg", "y/1.jpg"), labels[:2], ("eval", "train"), None),),
        mistakes=(PredictedImage("x/2.jpg", labels[0], labels[1], 0.9, 0.1, None),),
        baseline_version="1700000000" if baseline else "",
    )

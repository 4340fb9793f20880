import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from components.contract.example import name_folds
from components.images.check_result import Note
from components.metrics.score_metrics import Unknowns
from components.report.facts import ReportFacts, RunHeader, TrainedPhase
from components.report.findings.examination import examine
from components.report.shown import LabelErrors, SuspectFacts, Without
from tests.evaluation.metrics_sample import make_comparison, measure_confusion
from tests.report.samples.report_sample import small

LABELS = ("bird", "cat", "dog")


def header(**sections: Mapping[str, Any]) -> RunHeader:
    config = small().header.config
    changed = {name: {**config[name], **values} for name, values in sections.items()}
    return replace(small().header, config={**config, **changed})


def history(train: list[float], evaluated: list[float]) -> dict[str, Any]:
    return {
        "accuracy": train,
        "val_accuracy": evaluated,
        "val_loss": [1 - value for value in evaluated],
    }


def healthy(**changes: Any) -> ReportFacts:
    """Facts without findings, except for `changes`."""
    facts = replace(
        small(),
        header=header(),
        comparison=make_comparison(LABELS, each=100, accuracy=0.95),
        balance={"train": dict.fromkeys(LABELS, 800), "eval": dict.fromkeys(LABELS, 100)},
        files={"files": 2700, "examples": 2700},
        anomalies={"train": ()},
        phases=(TrainedPhase("train", 4, 3),),
        history=history([0.5, 0.9, 0.96, 0.97], [0.5, 0.9, 0.95, 0.94]),
        suspects=SuspectFacts((), errors=LabelErrors(0, 0, 9, 2700)),
    )
    metrics = facts.comparison.metrics
    scalars = {**metrics.scalars, "ece": 0.01}
    calm = replace(
        facts.comparison, metrics=replace(metrics, scalars=scalars), slices=(), changes={}
    )
    return replace(facts, **{"comparison": calm, **changes})


def test_a_healthy_run_has_no_findings() -> None:
    assert examine(healthy()).findings == ()
    assert examine(healthy(suspects=None, history={})).findings == (), "without data"


def with_metrics(confusion: list[list[int]], **scalars: float) -> dict[str, Any]:
    metrics = measure_confusion(LABELS, np.array(confusion))
    calm = {"ece": 0.01, **scalars}
    comparison = healthy().comparison
    changed = replace(metrics, scalars={**metrics.scalars, **calm})
    # As after a search, so that a low accuracy alone is no finding.
    return {"comparison": replace(comparison, metrics=changed), "search": {"minutes": 20}}


CONFUSED = [[60, 20, 20], [20, 60, 20], [20, 20, 60]]
OVERFITTED: dict[str, Any] = {"history": history([0.5, 0.9, 0.99, 0.99], [0.5, 0.7, 0.75, 0.74])}
EARLY: dict[str, Any] = {
    "history": history([0.5, 0.4, 0.3], [0.5, 0.4, 0.3]),
    "phases": (TrainedPhase("train", 3, 1),),
}
FEW: dict[str, Any] = {"header": header(transform={"size": 96}), **with_metrics(CONFUSED)}
MIXED_UP: dict[str, Any] = with_metrics([[90, 0, 10], [0, 100, 0], [50, 50, 0]])
UNBALANCED: dict[str, Any] = {"balance": {"train": {"bird": 800, "cat": 80, "dog": 400}}}
CASES: list[tuple[str, str, dict[str, Any]]] = [
    (
        "about 120 of 2,700 labels are probably wrong (90 to 150)",
        "review --output OUT",
        {"suspects": SuspectFacts((), errors=LabelErrors(90, 120, 150, 2700))},
    ),
    (
        "the same images, the eval split, pick and score the model",
        "add a test/ folder",
        {"split": "eval"},
    ),
    (
        "accuracy is 0.990 on train but 0.750 on eval",
        "add images, or use stronger augmentation: --augmentation.policy trivial",
        OVERFITTED,
    ),
    ("the first of 3 epochs was the best", "--training.learning_rate 0.001", EARLY),
    (
        "the last epoch, 3, was the best, with a training accuracy of 0.700",
        "--training.epochs 6",
        {
            "history": history([0.5, 0.6, 0.7], [0.5, 0.6, 0.7]),
            "header": header(training={"epochs": 3}),
            "phases": (TrainedPhase("train", 3, 3),),
        },
    ),
    (
        "accuracy is 0.600, and no search has tried other training options",
        "--training.minutes 40",
        with_metrics(CONFUSED)
        | {"header": replace(header(), training_seconds=420.0), "search": None},
    ),
    (
        "too few photographs to train from scratch",
        "--model.weights imagenet --model.name auto, or those of an earlier run",
        FEW,
    ),
    (
        "Unknown-image detection is off: 80 images are too few for a 1 % false-alarm rate",
        "add images, or change export.false_alarms",
        {"unknowns": Unknowns(0.01, 80, None)},
    ),
    (
        "the model never predicts dog",
        "--training.balance weights",
        with_metrics([[90, 10, 0], [10, 90, 0], [5, 5, 0]]),
    ),
    ("no image of dog is classified correctly", "labels may be mixed up", MIXED_UP),
    (
        "the test split has no images of dog",
        "add images of dog",
        with_metrics([[90, 5, 5], [0, 100, 0], [0, 0, 0]]),
    ),
    ("800 training images of bird, but 80 of cat", "--training.balance weights", UNBALANCED),
    (
        "fewer than 20 training images of cat",
        "add images, or merge classes",
        {"balance": {"train": {"bird": 100, "cat": 19, "dog": 100}}},
    ),
    (
        "the eval split has no images of bird",
        "sort them into train/ and eval/ folders",
        {"balance": {"train": dict.fromkeys(LABELS, 90), "eval": {"cat": 9, "dog": 9}}},
    ),
    (
        "the weights that training started from may know the eval images",
        "judge by a test split",
        {"split": "eval", "header": header(model={"weights": "w.h5"}, training={"keep": "last"})},
    ),
    ("1 file was rejected", "repair or remove", {"files": {"examples": 100, "rejected": 1}}),
    (
        "1 correction was not applied",
        "edit the corrections file",
        {
            "files": {
                "examples": 100,
                "rejected": 2,
                "rejected_by_category": {"removed by a correction": 2},
                "corrections": {"not_applied": 1},
            }
        },
    ),
    (
        "7 of 100 images: 16 bits, but no value above a quarter of white",
        "scale them to white",
        {"files": {"examples": 100, "notes": {Note.DARK: 7}}},
    ),
    (
        "at least 3 test images have copies in train: accuracy is 0.900 with them, 0.800 without",
        "copies among the suspects",
        {"files": {"examples": 100}, "leaks": Without(3, 0.9, 0.8)},
    ),
    (
        "labels that differ only in case: 'A', 'a'",
        "give them one name",
        {"files": {"look_alikes": ["labels that differ only in case: 'A', 'a'"]}},
    ),
    (
        "near duplicates are almost all images of cat, dog, and in several splits",
        "add images that differ",
        {"files": {"divided_classes": ["cat", "dog"]}},
    ),
    (
        "all images of cat are a group or copies, which stay together",
        "other groups",
        {"files": {"undivided_classes": ["cat"]}},
    ),
    (
        "1 anomaly in the data, such as label: new value x",
        "validation",
        {"anomalies": {"train": ("label: new value x",)}},
    ),
    (
        "training spent 40% of its time waiting for input",
        "set input.cache to decoded",
        {"input_facts": {"input_wait_fraction": 0.4, "advice": "set input.cache to decoded."}},
    ),
]


TWO_PHASES = (TrainedPhase("head", 1, 1, exported=False), TrainedPhase("fine_tune", 3, 3))
FALL = [0.6, 0.5, 0.4]


def transfer(
    train: list[float], evaluated: list[float], *phases: TrainedPhase, **sections: Any
) -> dict[str, Any]:
    """Changes for a training from pretrained weights in two phases, of one epoch and of three."""
    return {
        "history": history(train, evaluated),
        "phases": phases or TWO_PHASES,
        "header": header(**{"model": {"weights": "w.h5"}, "training": {"epochs": 3}, **sections}),
    }


HEAD, IN_VAIN = (
    phase._replace(exported=kept) for phase, kept in zip(TWO_PHASES, (True, False), strict=True)
)
NAN = math.nan
CASES += [
    (
        "training diverged in epoch 3: the loss was not finite",
        "--training.learning_rate 0.001, or compute more precisely: --training.precision float32",
        {
            "history": history([0.9, 0.9, 0.1], [0.9, 0.9, 1.0]) | {"val_loss": [2.0, 1.0, NAN]},
            "phases": (TrainedPhase("train", 3, 2, diverged=True),),
            "header": header(training={"metric": "accuracy", "precision": "float16"}),
        },
    ),
    (
        "fine-tuning has not improved the model beyond chance",
        "--training.learning_rate 0.001, or unfreeze fewer blocks: --transfer.unfreeze 1",
        transfer([0.7, *FALL], [0.7, *FALL], HEAD, IN_VAIN),
    ),
    (
        "fine-tuning has not improved the model beyond chance",
        "--transfer.unfreeze 1, or do not mirror text: --augmentation.flip false",
        transfer([0.8], [0.75], HEAD, augmentation={"flip": True}) | {"selection_folds": 5},
    ),
    (
        "accuracy is 0.950 on train but 0.700 on eval",
        "add images, or fine-tune the last layers: --transfer.unfreeze top",
        transfer([0.95], [0.7], HEAD, transfer={"unfreeze": "none"}),
    ),
    (
        "accuracy is 0.990 on train but 0.750 on eval",
        "add images, or start from pretrained weights: --model.weights imagenet --model.name auto",
        {
            "history": history([0.5, 0.9, 0.99, 0.99], [0.5, 0.7, 0.75, 0.74]),
            "header": header(transform={"size": 64 + 1}, augmentation={"policy": "trivial"}),
        },
    ),
]


def test_the_options_to_try_first() -> None:
    for changes, options in (
        (FEW, "--model.weights imagenet --model.name auto"),
        (OVERFITTED, "--augmentation.policy trivial"),
        (EARLY, "--training.learning_rate 0.001"),
        (MIXED_UP, ""),
    ):
        assert examine(healthy(**changes)).first == options


@pytest.mark.parametrize(("text", "advice", "changes"), CASES)
def test_each_finding_alone(text: str, advice: str, changes: dict[str, Any]) -> None:
    [finding] = examine(healthy(**changes)).findings
    assert finding.text == text
    assert advice in finding.advice
    assert finding.why


@pytest.mark.parametrize(
    ("confidence", "training", "text", "advice"),
    [
        (0.99, {"calibrate": True}, "overconfident", "it is already calibrated on the eval split"),
        (0.5, {"calibrate": False}, "underconfident", "--training.calibrate true"),
    ],
)
def test_calibration(confidence: float, training: dict[str, Any], text: str, advice: str) -> None:
    facts = healthy(header=header(training=training))
    metrics = facts.comparison.metrics
    bins = tuple(bin_._replace(confidence=confidence, accuracy=0.8) for bin_ in metrics.reliability)
    scalars = {**metrics.scalars, "ece": 0.2}
    changed = replace(metrics, reliability=bins, scalars=scalars)
    [finding] = examine(
        replace(facts, comparison=replace(facts.comparison, metrics=changed))
    ).findings
    assert finding.text == f"the calibration error is 0.200: the model is {text}"
    assert advice in finding.advice


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(with_metrics([[9, 0, 0], [0, 9, 0], [0, 0, 9]], ece=0.2), id="few images"),
        pytest.param(
            {
                "history": history([0.5, 0.9, 0.95], [0.5, 0.9, 0.95]),
                "header": header(training={"epochs": 3}),
                "phases": (TrainedPhase("train", 3, 3),),
            },
            id="a last epoch that left little to learn",
        ),
        pytest.param(
            {"header": header(transform={"size": 96}, model={"weights": "w.h5"})},
            id="photographs with pretrained weights",
        ),
    ],
)
def test_no_finding(changes: dict[str, Any]) -> None:
    assert examine(healthy(**changes)).findings == ()


def test_a_class_without_eval_images_is_one_finding() -> None:
    changes = with_metrics([[90, 5, 5], [0, 100, 0], [0, 0, 0]]) | {"split": "eval"}
    balance = {"train": dict.fromkeys(LABELS, 90), "eval": {"bird": 100, "cat": 100}}
    texts = [finding.text for finding in examine(healthy(**changes, balance=balance)).findings]
    assert texts.count("the eval split has no images of dog") == 1


def test_many_classes_are_counted() -> None:
    labels = tuple("abcdefgh")
    confusion = np.zeros((8, 8), np.int64)
    confusion[:, 0] = 50
    metrics = measure_confusion(labels, confusion)
    scalars = {**metrics.scalars, "ece": math.nan}
    comparison = replace(healthy().comparison, metrics=replace(metrics, scalars=scalars))
    examination = examine(healthy(comparison=comparison, search={"minutes": 20}))
    [finding] = examination.findings
    assert finding.text == "the model never predicts b, c, d and 4 more"
    assert examination.first == "", "no class is rare"


def test_overfitting_is_told_by_the_accuracy_on_the_folds() -> None:
    """As the report shows it; the curve is of an epoch that every fold has helped to choose."""
    curves = history([0.5, 0.9, 1.0, 1.0], [0.5, 0.6, 0.61, 0.6])
    facts = healthy(split=name_folds(5), history=curves)
    assert facts.metrics.scalars["accuracy"] == pytest.approx(0.977, abs=1e-3)
    assert not examine(facts).findings
    [finding] = examine(healthy(selection_folds=5, history=curves)).findings
    assert finding.text == "accuracy is 1.000 on train but 0.610 on 5 folds"


def test_the_last_epoch_is_the_exported_one_if_training_keeps_it() -> None:
    last = header(training={"keep": "last", "epochs": 4})
    curves = history([0.5, 0.9, 0.99, 0.99], [0.5, 0.7, 0.75, 0.74])
    facts = healthy(history=curves, header=last, phases=(TrainedPhase("train", 4, 4),))
    assert facts.kept_epoch == (4, "loss", 0.26)
    [finding] = examine(facts).findings
    assert finding.text == "accuracy is 0.990 on train but 0.740 on eval"
    learning = {**history(FALL[::-1], FALL[::-1]), "val_loss": [0.6, 0.5, 0.4]}
    phases = (TrainedPhase("train", 3, 3),)
    short = header(training={"keep": "last", "epochs": 3})
    [finding] = examine(healthy(history=learning, header=short, phases=phases)).findings
    assert finding.advice == "train longer: --training.epochs 6"
    unknown = curves | {"val_loss": [NAN] * 4, "val_accuracy": [NAN] * 4}
    unmeasured = healthy(history=unknown, header=last, phases=(TrainedPhase("train", 4, 4),))
    assert unmeasured.kept_epoch is None
    assert not examine(unmeasured).findings
    partly = {"train": dict.fromkeys(LABELS, 800), "eval": dict.fromkeys(LABELS[1:], 100)}
    [finding] = examine(healthy(header=last, balance=partly)).findings
    assert finding.why == "the weights are judged without them"
    assert not examine(healthy(selection_folds=5, balance=partly)).findings
    folds = {"train": dict.fromkeys(LABELS, 19), "eval": dict.fromkeys(LABELS, 1)}
    assert not examine(healthy(selection_folds=5, balance=folds)).findings, "it learns from both"
    [finding] = examine(healthy(**UNBALANCED, header=last)).findings
    assert finding.advice == "use --training.balance weights", "the metric chooses no epoch"
    # No epoch is selected, so the eval split may judge.
    assert not replace(facts, split="eval").is_optimistic
    assert "those of the last epoch; the scores are from the eval" in (
        replace(facts, split="eval").roles_of_splits
    )
    # A search has picked the training by them, as by folds.
    searched = replace(facts, search={"trials": [0]})
    optimistic = {s: replace(searched, split=s).is_optimistic for s in ("eval", "5 folds", "test")}
    assert optimistic == {"eval": True, "5 folds": True, "test": False}
    # Fine-tuning that is not better beyond chance is not exported.
    curves = history([0.5] * 4, [0.7, 0.8, 0.75, 0.9])
    facts = healthy(history=curves, header=last, phases=(HEAD, IN_VAIN))
    assert facts.kept_epoch == (1, "loss", 1 - 0.7)
    # The eval split has said so, even where the last epoch is kept.
    assert replace(facts, split="eval").is_optimistic
    facts = healthy(history=curves, header=last, phases=TWO_PHASES)
    assert replace(facts, split="eval").is_optimistic
    assert "The weights were selected on the eval split; the scores" in facts.roles_of_splits
    assert facts.kept_epoch == (4, "loss", 1 - 0.9)


def test_what_was_done_already_or_did_not_help_is_no_advice() -> None:
    facts = healthy(**UNBALANCED, header=header(training={"balance": "weights"}))
    [finding] = examine(facts).findings
    assert finding.advice == "add images of rare classes, which training weighs up already"
    [finding] = examine(healthy(**transfer([0.95], [0.7], HEAD))).findings
    assert finding.advice == "add images"
    facts = healthy(**transfer([0.7, *FALL], [0.7, *FALL], HEAD, IN_VAIN))
    metrics = facts.comparison.metrics
    perfect = replace(metrics, scalars={**metrics.scalars, "accuracy": 1.0})
    assert not examine(
        replace(facts, comparison=replace(facts.comparison, metrics=perfect))
    ).findings

"""Findings about the images: their files, classes and anomalies."""

import collections
from collections.abc import Iterator

from components.contract.example import EVAL, TRAIN, count_folds
from components.contract.printable import name_some
from components.images.check_result import Category, Note
from components.report.facts import ReportFacts
from components.report.shown import Finding

# Images of the most frequent class per image of the rarest.
_UNBALANCED = 10
_FEW_OF_A_CLASS = 20
_MANY_WRONG = 0.01
NAMED = 3
"""Labels that are named; others are counted."""

_FILES = {
    "rejected": (
        "file was rejected",
        "files were rejected",
        "rejected files are not used for training",
        "see the reasons below, and repair or remove the files",
    ),
    "label_conflicts": (
        "image appears under two labels",
        "images appear under two labels",
        "at least one of the labels is wrong",
        "remove the wrong copies, or correct their labels in `review`",
    ),
    "in_several_splits": (
        "image is in several splits",
        "images are in several splits",
        "the model is evaluated on training images",
        "remove the copies",
    ),
    "near_duplicates_of_several_labels": (
        "group of near duplicates has several labels",
        "groups of near duplicates have several labels",
        "at least one of the labels is probably wrong",
        "see the suspects, and correct the labels",
    ),
    "not_applied": (
        "correction was not applied",
        "corrections were not applied",
        "images, labels or classes have changed since, or a value is wrong",
        "see the reasons below, and edit the corrections file",
    ),
}
_ALIKE = {
    "divided_classes": (
        "near duplicates are almost all images of {}, and in several splits",
        "the model has seen others like those that judge it: the accuracy is too high",
        "add images that differ",
    ),
    "undivided_classes": (
        "all images of {} are a group or copies, which stay together",
        "none of them judges a model that has seen another one",
        "add images of other groups",
    ),
}

_FIRST = ("the model sees no others", "store each as a file")
_DARK = ("the model sees them dark", "scale them to white, and store 8 bits")


def check_files(facts: ReportFacts) -> Iterator[Finding]:
    """Look for rejected files and copies."""
    counted = {name: int(facts.files.get(name, 0)) for name in (*_FILES, "examples")}
    corrections = facts.files.get("corrections", {})
    counted["not_applied"] = corrections.get("not_applied", 0)
    by_category = facts.files.get("rejected_by_category", {})
    # As the user wishes.
    counted["rejected"] -= by_category.get(Category.REMOVED, 0)
    for name, (single, several, why, advice) in _FILES.items():
        count = counted[name]
        if count:
            text = f"{count:,} {single if count == 1 else several}"
            yield Finding("files", text, why, advice)
    if leaks := facts.leaks:
        others = leaks.accuracy_without
        without = "" if others is None else f", {others:.3f} without"
        copies = "image has a copy" if leaks.images == 1 else "images have copies"
        trained_on = f"{TRAIN} or {EVAL}" if facts.selection_folds else TRAIN
        where = f"{facts.split} {copies} in {trained_on}"
        advice = "see the copies among the suspects, and remove them from one split"
        if count_folds(facts.split):
            where = f"{copies} in another fold"
            advice = "see the copies among the suspects, and give an image and its copies one group"
        yield Finding(
            "files",
            f"at least {leaks.images:,} {where}: accuracy is "
            f"{leaks.accuracy:.3f} with {'it' if leaks.images == 1 else 'them'}{without}",
            "the model has seen them, or near duplicates, in training",
            advice,
        )
    for name, (text, why, advice) in _ALIKE.items():
        if labels := facts.files.get(name):
            yield Finding("files", text.format(name_some(labels, NAMED)), why, advice)
    for note, count in facts.files.get("notes", {}).items():
        text = f"{count:,} of {counted['examples']:,} images: {note}"
        yield Finding("files", text, *(_DARK if note == Note.DARK else _FIRST))
    for text in facts.files.get("look_alikes", ()):
        yield Finding("files", text, "each counts as one of its own", "give them one name")


def check_labels(facts: ReportFacts) -> Iterator[Finding]:
    """Look at how many labels are probably wrong."""
    errors = facts.suspects.errors if facts.suspects else None
    if errors and errors.low > _MANY_WRONG * errors.images:
        yield Finding(
            "suspects",
            f"about {errors.likely:,} of {errors.images:,} labels are probably wrong "
            f"({errors.low:,} to {errors.high:,})",
            "the model learns them, and is judged by them",
            "look at the suspects, and correct them: local_runner.py review --output OUT",
        )


def check_balance(facts: ReportFacts) -> Iterator[Finding]:
    """Look for classes with few images, or none."""
    counts = collections.Counter(facts.balance[TRAIN])
    if facts.selection_folds:
        counts.update(facts.balance.get(EVAL, {}))
    (most, many), (least, few) = (
        choose(counts.items(), key=lambda item: item[1]) for choose in (max, min)
    )
    picked = facts.find_option("training.keep") == "best"
    metric = ", and --training.metric balanced_accuracy to pick the epoch" if picked else ""
    if many >= _UNBALANCED * few:
        yield Finding(
            "balance",
            f"{many:,} training images of {most}, but {few:,} of {least}",
            "a model can score well and still ignore rare classes",
            "add images of rare classes, which training weighs up already"
            if facts.is_balanced
            else f"use --training.balance weights{metric}",
        )
    tiny = [label for label, count in counts.items() if count < _FEW_OF_A_CLASS]
    if tiny:
        yield Finding(
            "balance",
            f"fewer than {_FEW_OF_A_CLASS} training images of {name_some(tiny, NAMED)}",
            "too few to learn what the class looks like",
            "add images, or merge classes",
        )
    missing = sorted(counts.keys() - facts.balance.get(EVAL, counts).keys())
    # Classes that are absent from the images that judge are told with the predictions.
    if missing and not facts.selection_folds and facts.split != EVAL:
        yield Finding(
            "balance",
            f"the eval split has no images of {name_some(missing, NAMED)}",
            f"the weights are {'judged' if facts.keeps_last else 'selected'} without them",
            "add images, or sort them into train/ and eval/ folders",
        )


def check_anomalies(facts: ReportFacts) -> Iterator[Finding]:
    """Look at the results of data validation."""
    texts = [text for of_split in facts.anomalies.values() for text in of_split]
    if texts:
        yield Finding(
            "files",
            f"{len(texts)} {'anomaly' if len(texts) == 1 else 'anomalies'} in the data, such as "
            f"{texts[0]}",
            "the model may be worse on images that differ from earlier ones",
            "see the results of data validation below",
        )

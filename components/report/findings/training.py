"""Findings about training; their advice names the options of the phase that it is about."""

import itertools
import math
from collections.abc import Iterator

import numpy as np

from components.contract.example import EVAL, TRAIN
from components.contract.model_files import INPUT_WAIT_FRACTION
from components.contract.rules_of_thumb import (
    ENOUGH_TO_START_AT_RANDOM,
    LARGE_NETWORK,
    OWN_NETWORKS,
    SMALL_SIDE,
)
from components.report.facts import KeptEpoch, ReportFacts, TrainedPhase
from components.report.shown import Finding

# Accuracy on train minus that on eval.
_WIDE_GAP = 0.1
# Training accuracy, and accuracy, above which a model has little left to learn.
_LEARNED = 0.9
# A search should have the time of so many trainings, and at least as many minutes as were measured.
_TRAININGS, _LEAST_MINUTES = 5, 20

_WORDS = {"train": "", "head": " of the first phase", "fine_tune": " of fine-tuning"}


def _find_phase(facts: ReportFacts, kept: KeptEpoch) -> tuple[TrainedPhase, int]:
    """Return the phase of an epoch, and the epochs until its end."""
    ends = itertools.accumulate(phase.epochs for phase in facts.phases)
    known = zip(facts.phases, ends, strict=True)
    return next((phase, end) for phase, end in known if kept.epoch <= end)


def _lower_rate(facts: ReportFacts) -> str:
    option = "training.learning_rate"
    return f"lower the learning rate: --{option} {facts.find_option(option) / 10:g}"


def check_divergence(facts: ReportFacts) -> Iterator[Finding]:
    """Look for phases that diverged."""
    for phase in facts.phases:
        if not phase.diverged:
            continue
        advice = _lower_rate(facts)
        if facts.find_option("training.precision") != "float32":
            advice += ", or compute more precisely: --training.precision float32"
        yield Finding(
            "training",
            f"training diverged in epoch {phase.epochs}{_WORDS[phase.name]}: the loss was not "
            "finite",
            "it stopped there, and the model has the weights of an epoch before",
            advice,
        )


def check_fit(facts: ReportFacts) -> Iterator[Finding]:
    """Compare the accuracy on train and eval."""
    kept = facts.kept_epoch
    curves = [facts.history.get(name, ()) for name in ("accuracy", "val_accuracy")]
    if kept is None or min(map(len, curves)) < kept.epoch:
        return
    train, evaluated = (float(curve[kept.epoch - 1]) for curve in curves)
    if facts.folds:
        # The curve is of an epoch that all folds have chosen, each fold among them.
        evaluated = facts.metrics.scalars["accuracy"]
    if train - evaluated <= _WIDE_GAP:
        return
    advice, kept_out = ["add images"], facts.selection_split
    if _find_phase(facts, kept)[0].name == "head":
        if facts.find_option("transfer.unfreeze") == "none":
            advice.append("fine-tune the last layers: --transfer.unfreeze top")
    elif facts.find_option("augmentation.policy") == "none":
        advice.append("use stronger augmentation: --augmentation.policy trivial")
    if (weights := _advise_weights(facts)) and facts.find_option("transform.size") > SMALL_SIDE:
        advice.append(f"start from pretrained weights: {weights}")
    yield Finding(
        "training",
        f"accuracy is {train:.3f} on train but {evaluated:.3f} on {kept_out}",
        "the network overfits: it memorizes the training images",
        ", or ".join(advice),
    )


def check_length(facts: ReportFacts) -> Iterator[Finding]:
    """Look for phases that were too short, too long or useless."""
    if facts.kept_epoch is None:
        return
    phase, end = _find_phase(facts, facts.kept_epoch)
    limit, where = "training.epochs", _WORDS[phase.name]
    most, last = facts.find_option(limit), facts.phases[-1]
    if last.diverged:
        return
    # Folds drop fine-tuning before the training on all images.
    dropped = facts.selection_folds and facts.find_option("transfer.unfreeze") != "none"
    if last.name != phase.name or (phase.name == "head" and dropped):
        if facts.metrics.scalars["accuracy"] < 1:
            text = ", or do not mirror text: --augmentation.flip false"
            mirrored = facts.find_option("augmentation.flip")
            yield Finding(
                "training",
                "fine-tuning has not improved the model beyond chance",
                "the model has the weights of the first phase, and fine-tuning only took time",
                f"{_lower_rate(facts)}, or unfreeze fewer blocks: --transfer.unfreeze 1"
                f"{text if mirrored else ''}",
            )
        return
    # With training.keep last, the best epoch need not be the exported one.
    metric = facts.kept_epoch.metric
    values = np.array(facts.history[f"val_{metric}"][end - phase.epochs : end], np.float64)
    values[~np.isfinite(values)] = math.nan
    epoch = 1 + int(np.nanargmin(values) if metric == "loss" else np.nanargmax(values))
    if epoch == 1 and phase.epochs >= 3:
        yield Finding(
            "training",
            f"the first of {phase.epochs} epochs{where} was the best",
            "further training only made the model worse",
            _lower_rate(facts),
        )
    accuracy = [float(value) for value in facts.history.get("accuracy", ())[end - 1 : end]]
    # With a decaying learning rate the last epoch is often the best one.
    if phase.name != "head" and epoch == phase.epochs == most and min(accuracy or [1]) < _LEARNED:
        yield Finding(
            "training",
            f"the last epoch{where}, {most}, was the best, with a training accuracy of "
            f"{accuracy[0]:.3f}",
            "the network was still learning",
            f"train longer: --{limit} {2 * most}",
        )


def check_search(facts: ReportFacts) -> Iterator[Finding]:
    """Look for a low accuracy that no search has tried to raise."""
    if facts.search:
        return
    accuracy, seconds = facts.metrics.scalars["accuracy"], facts.header.training_seconds
    if not accuracy < _LEARNED:
        return
    minutes = max(_LEAST_MINUTES, 10 * math.ceil(_TRAININGS * seconds / 600))
    yield Finding(
        "training",
        f"accuracy is {accuracy:.3f}, and no search has tried other training options",
        "another learning rate, augmentation or network may suit these images better",
        f"search for them: --training.minutes {minutes}",
    )


def check_start(facts: ReportFacts) -> Iterator[Finding]:
    """Look for photographs too few for random weights, and weights that may know the answers."""
    images, size = sum(facts.balance.get(TRAIN, {}).values()), facts.find_option("transform.size")
    few = images < ENOUGH_TO_START_AT_RANDOM and size > SMALL_SIDE
    if facts.split == EVAL and facts.find_option("model.weights") not in ("none", "imagenet"):
        yield Finding(
            "run",
            "the weights that training started from may know the eval images",
            "those of an earlier run with folds do, and then the accuracy is too high",
            "judge by a test split that no training has seen",
        )
    weights, parameters = _advise_weights(facts), facts.model["parameters"]
    if not few or not weights or facts.metrics.scalars["accuracy"] >= _LEARNED:
        return
    why = f"{images:,} images; from random weights, photographs take {ENOUGH_TO_START_AT_RANDOM:,}"
    if parameters and parameters >= LARGE_NETWORK:
        why = f"the network has {parameters:,} weights, too many for {images:,} images"
    yield Finding(
        "run",
        "too few photographs to train from scratch",
        why,
        f"start from pretrained weights: {weights}, or those of an earlier run",
    )


def _advise_weights(facts: ReportFacts) -> str:
    """Return the options for pretrained weights; "" if the network has any or cannot have them."""
    if facts.find_option("model.weights") != "none" or facts.find_option("model.build_fn"):
        return ""
    is_own = facts.find_option("model.name") in OWN_NETWORKS
    return "--model.weights imagenet" + (" --model.name auto" if is_own else "")


def check_waiting(facts: ReportFacts) -> Iterator[Finding]:
    """Look at the time spent waiting for input."""
    if advice := facts.input_facts["advice"]:
        yield Finding(
            "training",
            f"training spent {facts.input_facts[INPUT_WAIT_FRACTION]:.0%} of its time waiting for "
            "input",
            "an idle accelerator wastes time and money",
            advice,
        )

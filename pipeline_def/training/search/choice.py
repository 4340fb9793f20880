"""Which trial of a search is exported, and why; the file that repeats it."""

import math
import os
from typing import Any

import tensorflow as tf
import yaml

from components.contract.confidence import Z
from components.contract.model_files import BEST_FILE
from pipeline_def.config.recipes import Values, nest_values
from pipeline_def.config.training import TrainerConfig
from pipeline_def.training.search.schedule import Schedule, compare
from pipeline_def.training.search.trials import DONE, Trial


def choose(schedule: Schedule) -> tuple[Trial, str]:
    """Return the trial to export, and why."""
    first, *others = (trial for trial in schedule.trials if trial.seconds)
    complete = [trial for trial in others if trial.state == DONE]
    spent = (schedule.seconds - schedule.left) / 60
    ended = ""
    if schedule.interrupted:
        ended = " You interrupted it."
    elif schedule.stale:
        ended = " It stopped early, as the last ones brought nothing."
    begin = (
        f"Searched for {spent:.0f} of {schedule.seconds / 60:.0f} minutes: {len(others)} "
        f"trial{'s' * (len(others) != 1)}, {len(complete)} trained to the end.{ended}"
    )
    if not schedule.can_gain:
        return first, (
            "No search: even a trial without a mistake on these images would not be better "
            "than the recipe's training beyond chance."
        )
    best = schedule.find_best()
    if not best and (others or schedule.interrupted):
        return first, f"{begin} The recipe stays."
    if not best:
        # One trial more takes about one and a half times as long.
        needed = math.ceil(2.5 * first.seconds / 60)
        return first, (
            f"training.minutes is {schedule.seconds / 60:g}, too few to train a single trial: the "
            f"recipe's training took {first.seconds / 60:.1f} minutes, so a search takes at "
            f"least {needed}."
        )
    gain, error = compare(best.right, first.right)
    where = "in cross-validation" if schedule.runner.folds else "on the eval split"
    names = ", ".join(f"{key} {value}" for key, value in best.values.items())
    told = f"{gain:+.3f} ± {Z * error:.3f} {where} with {names}"
    if gain > error:
        return best, f"{begin} Trial {best.number} is better than the recipe: {told}."
    return first, (
        f"{begin} None is better than the recipe by more than one standard error; the best: {told}."
    )


def write_best(
    plain: TrainerConfig, values: Values, *, folds: int, directory: str, text: str
) -> None:
    """Write the values of the chosen trial, and options that a run would choose by them.

    Args:
        plain: what the trial differs from.
        values: of the trial.
        folds: of every trial.
        directory: for the file.
        text: the reason for the choice, for a comment.
    """
    added: dict[str, Any] = {}
    if values and plain.training.folds == "auto":
        # The estimate that decides depends on the network and its epochs.
        added["training.folds"] = folds
    if "model.name" in values:
        added["transform.size"] = plain.transform.size
    nested = nest_values({**values, **added})
    tf.io.gfile.makedirs(directory)
    with tf.io.gfile.GFile(os.path.join(directory, BEST_FILE), "w") as file:
        file.write(f"# {text}\n{yaml.safe_dump(nested) if nested else ''}")

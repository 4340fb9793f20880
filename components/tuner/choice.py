"""Which trial of a search is exported, and why; the file that repeats it."""

import math
import os
import statistics
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import yaml

from components.contract.confidence import CONFIDENCE, Z
from components.contract.model_files import BEST_FILE
from components.storage.folder import replace_file
from components.trainer.config.recipes import Values, nest_values
from components.trainer.config.training import TrainerConfig
from components.tuner.trials import DONE, Trial


def compare(mine: list[str], theirs: list[str]) -> tuple[float, float]:
    """Return how much better `mine` is than `theirs`, both `Trial.right`, and the standard error.

    >>> compare(["1111"], ["1100"])
    (0.3333, 0.3043)
    """
    differences, variances = [], []
    for first, second in zip(mine, theirs, strict=True):
        pairs = [*zip(first, second, strict=True)]
        # Bonett and Price, 2012: one disagreement more in each direction, so that the error is
        # above 0 even if the trials agree on every image.
        gained, lost = (
            (pairs.count(kind) + 1) / (len(pairs) + 2) for kind in (("1", "0"), ("0", "1"))
        )
        differences.append(gained - lost)
        variances.append((gained + lost - (gained - lost) ** 2) / (len(pairs) + 2))
    error = math.sqrt(sum(variances)) / len(variances)
    return round(statistics.mean(differences), 4), round(error, 4)


def is_better(trial: list[str], recipe: list[str], *, trials: int = 1) -> bool:
    """Return whether the best of some trials is better than the recipe beyond chance.

    Both are `Trial.right`. If all trials were as good as the recipe, one of them would pass in at
    most 5 % of the searches (Bonferroni's correction of a one-sided test).
    """
    gain, error = compare(trial, recipe)
    return gain > NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / trials) * error


def can_gain(recipe: Trial) -> bool:
    """Return whether a trial without a mistake would be better than the recipe beyond chance."""
    return is_better(["1" * len(text) for text in recipe.right], recipe.right)


def find_best(trials: Sequence[Trial]) -> Trial | None:
    """Return the most accurate of the complete trials; of equal ones, the first."""
    complete = (trial for trial in trials if trial.state == DONE)
    return max(complete, key=lambda trial: (trial.score, -trial.number), default=None)


def choose(trials: Sequence[Trial], *, seconds: float, folds: int) -> tuple[Trial, str]:
    """Return the trial to export, and why.

    The recipe's trial is the first; `seconds` are those that the search was given; `folds` compared
    the trials, or, if 0, the eval split did.
    """
    recipe, *others = (trial for trial in trials if trial.seconds)
    if not can_gain(recipe):
        return recipe, (
            "No search: even a trial without a mistake on these images would not beat the recipe "
            "beyond chance."
        )
    best = find_best(others)
    begin = _summarize(recipe, others, seconds=seconds)
    if not best and others:
        return recipe, f"{begin} The recipe stays."
    if not best:
        # Another trial takes about as long as the recipe's training.
        needed = math.ceil(2 * recipe.seconds / 60)
        return recipe, (
            f"training.minutes is {seconds / 60:g}, too few to train a single trial: the "
            f"recipe's training took {recipe.seconds / 60:.1f} minutes, so a search takes at "
            f"least {needed}."
        )
    gain, error = compare(best.right, recipe.right)
    chance = f"what chance gives the best of {len(others)}" if others[1:] else "chance"
    where = "in cross-validation" if folds else "on the eval split"
    names = ", ".join(f"{key} {value}" for key, value in best.values.items())
    difference = f"{gain:+.3f} ± {Z * error:.3f} {where} with {names}"
    if is_better(best.right, recipe.right, trials=len(others)):
        return best, (
            f"{begin} Trial {best.number} is better than the recipe, beyond {chance}: {difference}."
        )
    return (
        recipe,
        f"{begin} None is better than the recipe beyond {chance}; the best: {difference}.",
    )


def _summarize(recipe: Trial, others: Sequence[Trial], *, seconds: float) -> str:
    """Say how long a search took, and how many trials it had."""
    complete = sum(trial.state == DONE for trial in others)
    spent = sum(trial.seconds for trial in (recipe, *others)) / 60
    return (
        f"Searched for {round(spent, 1):g} of {seconds / 60:g} minutes: {len(others)} "
        f"trial{'s' * (len(others) != 1)}, {complete} trained to the end."
    )


def write_best(
    plain: TrainerConfig, values: Values, *, folds: int, directory: str, text: str
) -> None:
    """Write the values of the chosen trial, which differ from `plain`, and what follows from them.

    That is options that a run would choose by them. `text` is a comment: the reason.
    """
    added: dict[str, Any] = {}
    if values and plain.training.folds == "auto":
        # The estimate that decides depends on the network and its epochs.
        added["training.folds"] = folds
    if "model.name" in values:
        added["transform.size"] = plain.transform.size
    nested = nest_values({**values, **added})
    content = f"# {text}\n{yaml.safe_dump(nested) if nested else ''}"
    replace_file(os.path.join(directory, BEST_FILE), content.encode())

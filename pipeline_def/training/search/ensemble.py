"""The ensemble of the best trials: greedy selection with replacement (Caruana et al., 2004).

It is judged by the images that chose its members, but there are at most as many as finalists, and
what counts is whether it is better beyond chance on these images.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from components.contract.confidence import Z
from pipeline_def.config.recipes import get_value
from pipeline_def.training.search.schedule import Schedule, compare
from pipeline_def.training.search.space import find_space
from pipeline_def.training.search.trials import Trial, find_error, find_score

# Selections, of which several may be of the same trial.
_MOST_PICKS = 12


def find_ensemble(schedule: Schedule, chosen: Trial) -> dict[str, Any] | None:
    """Return the ensemble around the chosen trial; None if no other trial improves it.

    Returns:
        `members`, the chosen trial first: `trial`, its number, `count`, how much it weighs, and
        `values`, of all options of the search; `score` and its `error`; `gain` over the chosen
        trial and its `interval`; `better`, whether that is above 0; `exported`, false until
        ImageTrainer exports it; `text`.
    """
    runner, trials = schedule.runner, [chosen]
    trials += [trial for trial in schedule.finalists if trial is not chosen]
    ids = runner.read_logits(chosen)[1]
    known = ids >= 0
    rows = np.flatnonzero(known), ids[known]
    likelihoods = {one.number: softmax(runner.read_logits(one)[0], 1)[rows] for one in trials}
    counts = select(likelihoods, first=chosen.number)
    if len(counts) < 2:
        return None
    members = [trial for trial in trials if trial.number in counts]
    mean = sum(counts[one.number] * softmax(runner.read_logits(one)[0], 1) for one in members)
    right = runner.find_right(np.asarray(mean), ids)
    gain, error = compare(right, chosen.right)
    low, high, score = gain - Z * error, gain + Z * error, find_score(right)
    names = ", ".join(str(number) for number in sorted(counts))
    where = "in cross-validation" if runner.folds else "on the eval split"
    return {
        "members": [
            {"trial": one.number, "count": counts[one.number], "values": _all_values(schedule, one)}
            for one in members
        ],
        "score": score,
        "error": find_error(right),
        "gain": gain,
        "interval": [low, high],
        "better": low > 0,
        "exported": False,
        "text": f"Ensemble of trials {names}: {score:.3f}, {gain:+.3f} ({low:.3f} to {high:.3f}) "
        f"{where}",
    }


def select(likelihoods: Mapping[int, NDArray[Any]], *, first: int) -> Counter[int]:
    """Return how often each trial is picked, for the lowest log loss of the mean probabilities.

    Args:
        likelihoods: trial → its probability of the true label of each image.
        first: the first pick.
    """
    picks, total = [first], likelihoods[first].astype(np.float64)
    lowest = _find_loss(total)
    while len(picks) < _MOST_PICKS:
        count = len(picks) + 1
        losses = ((_find_loss((total + of) / count), one) for one, of in likelihoods.items())
        loss, pick = min(losses)
        if loss >= lowest:
            break
        picks, total, lowest = [*picks, pick], total + likelihoods[pick], loss
    return Counter(picks)


def _find_loss(likelihoods: NDArray[Any]) -> float:
    return -float(np.log(np.maximum(likelihoods, np.finfo(np.float32).tiny)).mean())


def _all_values(schedule: Schedule, trial: Trial) -> dict[str, Any]:
    """Return the values of all options of the search, also where they are the recipe's."""
    plain = schedule.plain
    return {key: trial.values.get(key, get_value(plain, key)) for key in find_space(plain)}

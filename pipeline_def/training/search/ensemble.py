"""The ensemble of the best trials: greedy selection with replacement (Caruana et al., 2004).

Log loss selects and judges it, after calibration: an ensemble is less sure of itself, which a
temperature could also bring. On 304 images of CIFAR-10 the interval of the log loss told the
ensembles that were more accurate on 10,000 others; that of the accuracy hardly ever did.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from components.contract.confidence import Z
from pipeline_def.config.recipes import get_value
from pipeline_def.serving.signatures import LEAST_PROBABILITY
from pipeline_def.training.calibration import fit_temperature, pick_true
from pipeline_def.training.search.schedule import Schedule, compare
from pipeline_def.training.search.trials import Trial, find_error, find_score

# Selections, of which several may be of the same trial, and probabilities of each that take part.
_MOST_PICKS, _MOST_NUMBERS = 12, 1_000_000
# Of the log loss, above rounding.
_LEAST_GAIN = 1e-4


def find_ensemble(schedule: Schedule, chosen: Trial) -> dict[str, Any] | None:
    """Return the ensemble around the chosen trial; None if no other trial improves it.

    Returns:
        `members`, the chosen trial first: `trial`, its number, `count`, how much it weighs, and
        `values`, of all options of the search; `score` and its `error`; `gain` over the chosen
        trial and its `interval`; `loss_interval` of how much lower its log loss is; `better`,
        whether that is above 0 and `gain` is not below; `exported`, false until ImageTrainer
        exports it; `text`.
    """
    runner, trials = schedule.runner, [chosen]
    trials += [trial for trial in schedule.finalists if trial is not chosen]
    logits, ids = runner.read_logits(chosen)
    rows = np.flatnonzero(ids >= 0)[: max(1, _MOST_NUMBERS // logits.shape[1])]
    some = {one.number: softmax(runner.read_logits(one)[0][rows], axis=1) for one in trials}
    counts = select(some, ids[rows], first=chosen.number)
    if len(counts) < 2:
        return None
    members = [trial for trial in trials if trial.number in counts]
    mean: Any = sum(counts[one.number] * softmax(runner.read_logits(one)[0], 1) for one in members)
    lower = _find_likelihoods(mean[rows] / counts.total(), ids[rows])
    lower -= _find_likelihoods(some[chosen.number], ids[rows])
    values = [
        {"trial": one.number, "count": counts[one.number], "values": _all_values(schedule, one)}
        for one in members
    ]
    names = ", ".join(str(number) for number in sorted(counts))
    judged = _judge(schedule, chosen, runner.find_right(mean, ids), lower, names)
    return {"members": values, "exported": False, **judged}


def _judge(
    schedule: Schedule, chosen: Trial, right: list[str], lower: NDArray[np.float64], names: str
) -> dict[str, Any]:
    """Compare an ensemble with the chosen trial.

    Args:
        schedule: of the search.
        chosen: the chosen trial.
        right: `Trial.right` of the ensemble.
        lower: how much lower its log loss is, [images].
        names: of its trials.
    """
    score, (gain, error) = find_score(right), compare(right, chosen.right)
    loss, loss_error = float(lower.mean()), float(lower.std() / len(lower) ** 0.5)
    low, high = gain - Z * error, gain + Z * error
    lowest, highest = loss - Z * loss_error, loss + Z * loss_error
    where = "in cross-validation" if schedule.runner.folds else "on the eval split"
    return {
        "score": score,
        "error": find_error(right),
        "gain": gain,
        "interval": [low, high],
        "loss_interval": [lowest, highest],
        "better": lowest > 0 and gain >= 0,
        "text": f"Ensemble of trials {names}: {score:.3f}, {gain:+.3f} ({low:.3f} to {high:.3f}) "
        f"{where}, with a log loss lower by {loss:.3f} ({lowest:.3f} to {highest:.3f})",
    }


def select(
    probabilities: Mapping[int, NDArray[np.float32]], ids: NDArray[np.int64], *, first: int
) -> Counter[int]:
    """Return how often each trial is picked, for the lowest log loss of the mean probabilities.

    Args:
        probabilities: trial → its probabilities, [images, classes].
        ids: label ids.
        first: the first pick.
    """
    picks, total = [first], probabilities[first].astype(np.float64)
    highest = _find_likelihoods(total, ids).mean()
    while len(picks) < _MOST_PICKS:
        sums = {number: total + one for number, one in probabilities.items()}
        found = {
            number: _find_likelihoods(one / (len(picks) + 1), ids).mean()
            for number, one in sums.items()
        }
        pick = max(found, key=lambda number: found[number])
        if found[pick] < highest + _LEAST_GAIN:
            break
        picks, total, highest = [*picks, pick], sums[pick], found[pick]
    return Counter(picks)


def _find_likelihoods(probabilities: NDArray[Any], ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the logarithms of calibrated probabilities of the labels, [images]."""
    logits = np.log(np.maximum(probabilities, LEAST_PROBABILITY))
    temperature = fit_temperature(logits, ids).temperature
    return pick_true(log_softmax, logits, ids, temperature)


def _all_values(schedule: Schedule, trial: Trial) -> dict[str, Any]:
    """Return the values of all options of the search, also where they are the recipe's."""
    plain = schedule.plain
    return {key: trial.values.get(key, get_value(plain, key)) for key in schedule.space}

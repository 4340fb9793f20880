"""Labels that are probably wrong, each with a label that is more likely.

All other images judge an image: those with similar features should have its label. What a kernel
ridge regression without the image itself predicts for it follows in closed form, so no network has
to be trained for that.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import ssymm
from scipy.linalg.lapack import spotrf, spotri
from scipy.special import softmax

from components.contract.image_tables import Suspect
from components.host.progress import add_progress
from components.report.shown import LabelErrors
from components.report.suspects.similar import Columns, Features, Floats, Ints, normalize

LEAST_IMAGES = 100
"""Images that can judge each other."""

_TEXTS = ("sha256", "path", "split", "label")
# Half an hour of looking.
_MOST = 500
# Of 3,600 images of CIFAR-10 with 8 % of the labels flipped, this score lists seven in ten of those
# flipped at random, and four in ten of those to a similar class; of untouched labels, one in 900.
_LEAST_SCORE = 0.3
# Images that judge each other: the kernel has a number for each pair of them.
_TOGETHER = 4096
_RIDGE = 0.2
# Fractions of wrong labels, and factors that turn predictions into logits, of which the most likely
# ones count. Where the predictions agree with nearly all labels, they are certain: noise would
# explain wrong labels as well.
_RATES = np.array([0.0, *np.geomspace(1e-4, 0.5, 60)])
_LEAST_FACTOR, _SURE_FACTOR, _MOST_FACTOR = 1, 7, 30
_SURE = 0.9
# Within one and two standard deviations, log-likelihoods are so much below the highest.
_ONE_DEVIATION, _TWO_DEVIATIONS = 0.5, 1.92


@dataclass(frozen=True)
class Judged:
    """What images make of each other's labels."""

    wrong: Floats
    """Probability that the label is wrong, [images]."""
    predicted: Ints
    """Label id that the other images predict, [images]."""
    proposed: Ints
    """Most probable label id other than the given one, [images]."""
    likelihoods: NDArray[np.float64]
    """Log-likelihood of each fraction of wrong labels."""

    @property
    def rates(self) -> NDArray[np.float64]:
        """Low, likely and high fraction of wrong labels."""
        inside = _RATES[self.likelihoods > self.likelihoods.max() - _TWO_DEVIATIONS]
        return np.array([inside[0], _RATES[self.likelihoods.argmax()], inside[-1]])


def find_wrong_labels(
    columns: Columns, features: Features | None
) -> tuple[list[Suspect], LabelErrors | None]:
    """Return the suspects, highest scores first, and an estimate of how many labels are wrong.

    There are none unless wrong labels stand out from images that are only hard. Images whose label
    most others of it seem not to have are no suspects, nor is any image if most are like that. The
    estimate is None if nothing can be judged.
    """
    # A label that no training image has is "".
    rows = np.flatnonzero(columns["label"] != "")
    if features is None or len(rows) < LEAST_IMAGES:
        return [], None
    labels, ids = np.unique(columns["label"][rows].astype(str), return_inverse=True)
    judged = judge_labels(features, rows, ids)
    agree = judged.predicted == ids
    learned = (2 * np.bincount(ids, agree) >= np.bincount(ids))[ids]
    if 2 * learned.sum() < len(rows):
        return [], None
    low, likely, high = np.rint(judged.rates * len(rows)).astype(int).tolist()
    decided = np.broadcast_to(columns.get("decided", False), len(columns["label"]))[rows]
    scores = judged.wrong * (learned & ~decided)
    chosen = np.argsort(-scores, kind="stable")[:_MOST]
    chosen = chosen[scores[chosen] >= _LEAST_SCORE]
    texts = [columns[name][rows[chosen]].tolist() for name in _TEXTS]
    named = zip(*texts, scores[chosen].tolist(), labels[judged.proposed[chosen]], strict=True)
    suspects = [
        Suspect(key, path, split, label, "label", score, str(other))
        for key, path, split, label, score, other in named
    ]
    stands_out = judged.wrong.max() >= _LEAST_SCORE
    return suspects, LabelErrors(low, likely if stands_out else 0, high, len(rows))


def judge_labels(features: Features, rows: Ints, ids: Ints) -> Judged:
    """Judge the label of each image by other ones: all, or as many as fit into memory.

    Args:
        features: of any float type, [all rows, features].
        rows: of the images, [images].
        ids: their label ids, from 0, [images].
    """
    count = -(-len(rows) // _TOGETHER)
    parts = [slice(first, None, count) for first in range(count)]
    judged = []
    for part in parts:
        judged.append(_judge(features[rows[part]], ids[part], ids.max() + 1))
        add_progress("labels", len(ids[part]), total=len(ids), unit="labels judged")

    def join(name: str) -> Any:
        values = np.empty(len(rows), getattr(judged[0], name).dtype)
        for part, of_part in zip(parts, judged, strict=True):
            values[part] = getattr(of_part, name)
        return values

    likelihoods = np.sum([of_part.likelihoods for of_part in judged], axis=0)
    return Judged(join("wrong"), join("predicted"), join("proposed"), likelihoods)


def _judge(features: Features, ids: Ints, classes: int) -> Judged:
    values = np.asarray(features, np.float32)
    values = normalize(values - values.mean(axis=0))
    kernel = np.exp(2 * (values @ values.T - 1))
    kernel[np.diag_indices_from(kernel)] += _RIDGE
    # A third of the time of `np.linalg.inv`, which makes no use of the symmetry.
    factor, _ = spotrf(kernel.T, lower=True, overwrite_a=True)
    inverse, _ = spotri(factor, lower=True, overwrite_c=True)
    diagonal = inverse.diagonal()[:, np.newaxis]
    given = (ids[:, np.newaxis] == np.arange(classes)).astype(np.float32)
    targets = given
    # The second time, a suspect counts as what the others take it for.
    for _ in range(2):
        residuals = ssymm(1, inverse, targets - targets.mean(axis=0), lower=True) / diagonal
        probabilities, wrong, likelihoods = _calibrate(targets - residuals, ids)
        others = probabilities * (1 - given)
        others /= others.sum(axis=1, keepdims=True) + 1e-9
        targets = given + wrong[:, np.newaxis] * (others - given)
    return Judged(wrong, probabilities.argmax(axis=1), others.argmax(axis=1), likelihoods)


def _calibrate(predictions: Floats, ids: Ints) -> tuple[Floats, Floats, NDArray[np.float64]]:
    """Turn predictions into probabilities, given that some labels are any other one by chance.

    Returns:
        Probabilities [images, classes]; the probability that each label is wrong; and the
        log-likelihood of each of `_RATES`, with the best factor.
    """
    images, others = np.arange(len(ids)), max(1, predictions.shape[1] - 1)
    sure = (predictions.argmax(axis=1) == ids).mean() >= _SURE
    factors = np.geomspace(_SURE_FACTOR if sure else _LEAST_FACTOR, _MOST_FACTOR, 30)
    likelihoods = np.empty((len(factors), len(_RATES)))
    for row, factor in enumerate(factors):
        right = softmax(factor * predictions, axis=1)[images, ids].astype(np.float64)
        for column, rate in enumerate(_RATES):
            mixed = (1 - rate) * right + rate * (1 - right) / others
            likelihoods[row, column] = np.log(mixed + 1e-12).sum()
    best = likelihoods.max(axis=0)
    # Wrong labels and a lack of confidence may explain the same, and a missed label is worse.
    column = np.flatnonzero(best > best.max() - _ONE_DEVIATION)[-1]
    probabilities = softmax(factors[likelihoods[:, column].argmax()] * predictions, axis=1)
    right, rate = probabilities[images, ids], _RATES[column]
    wrong = rate * (1 - right) / others
    wrong /= wrong + (1 - rate) * right + 1e-12
    return probabilities, wrong.astype(np.float32), best

"""Labels that are probably wrong, each with a label that is more likely."""

import numpy as np
from numpy.typing import NDArray

from components.contract.suspects import Suspect
from components.report.suspects.label_scores import LEAST_IMAGES, score_labels
from components.report.suspects.odd_images import Columns
from components.report.suspects.shown import LabelErrors

_NUMBERS = ("margin", "probability", "given_probability")
_TEXTS = ("sha256", "path", "split", "label", "proposed")
# Half an hour of looking.
_MOST = 500
_LEAST_SCORE = 0.1


def find_wrong_labels(columns: Columns) -> tuple[list[Suspect], LabelErrors | None]:
    """Return the suspects, highest scores first, and an estimate of how many labels are wrong.

    There are no suspects unless wrong labels stand out from images that are only hard, and no more
    than the estimate's upper bound. The network cannot judge labels that it has not learned, and
    none if those are of most images. The estimate is None if too few images can be judged.
    """
    if not {*_NUMBERS, "proposed"} <= columns.keys():
        return [], None
    # Neither images that a person has decided about, nor a label that no training image has.
    open_ones = (columns["label"] != "") & ~columns.get("decided", np.False_)
    judged = np.flatnonzero(open_ones & _is_learned(columns))
    margin, probability, given = (columns[name][judged].astype(np.float64) for name in _NUMBERS)
    if np.isfinite(margin).sum() < LEAST_IMAGES or 2 * len(judged) < open_ones.sum():
        return [], None
    scores, errors = score_labels(margin, probability, given)
    most = min(errors.high, _MOST) if errors.likely else 0
    order = np.argsort(-scores, kind="stable")[:most]
    chosen = order[scores[order] >= _LEAST_SCORE]
    texts = {name: columns[name][judged[chosen]].tolist() for name in _TEXTS}
    rows = zip(*texts.values(), scores[chosen].tolist(), strict=True)
    return [
        Suspect(key, path, split, label, "label", score, proposed)
        for key, path, split, label, proposed, score in rows
    ], errors


def _is_learned(columns: Columns) -> NDArray[np.bool_]:
    """Return whether the network agrees with most images of each image's label.

    It must not disagree with significantly more than half of those that it was not trained on,
    either: it may have learned the others by heart.
    """
    names, rows = np.unique(columns["label"].astype(str), return_inverse=True)
    wrong = columns["given_probability"] < columns["probability"]
    held = np.isnan(columns["margin"].astype(np.float64))

    def count(chosen: NDArray[np.bool_]) -> NDArray[np.int_]:
        return np.bincount(rows[chosen], minlength=len(names))

    unseen, errors = count(held), count(held & wrong)
    learned = (2 * count(wrong) <= count(wrong | ~wrong)) & (errors - unseen / 2 <= np.sqrt(unseen))
    judged: NDArray[np.bool_] = learned[rows]
    return judged

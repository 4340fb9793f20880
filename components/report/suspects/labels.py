"""Labels that are probably wrong, each with a label that is more likely."""

import numpy as np

from components.records.suspects import Suspect
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
    than the estimate's upper bound. The estimate is None if too few images have margins.
    """
    if not {*_NUMBERS, "proposed"} <= columns.keys():
        return [], None
    # Neither images that a person has decided about, nor a label that no training image has.
    judged = np.flatnonzero((columns["label"] != "") & ~columns.get("decided", np.False_))
    margin, probability, given = (columns[name][judged].astype(np.float64) for name in _NUMBERS)
    if np.isfinite(margin).sum() < LEAST_IMAGES:
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

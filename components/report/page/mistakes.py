"""The images that the model is most sure and wrong about."""

from __future__ import annotations

import numpy as np

from components.report.facts import Mistake, ReportFacts
from components.report.page.elements import cards, clip, first_of, framed, paragraph, percent

_OPEN = 24


def write_mistakes(facts: ReportFacts) -> str:
    """Write a gallery."""
    confusion = facts.comparison.measures.confusion
    total = int(confusion.sum() - np.trace(confusion))
    if not facts.mistakes:
        return paragraph(
            f"{total:,} images are taken for another class; none is shown."
            if total
            else "The model is wrong about no image."
        )
    # Images whose label the model does not know are no part of the matrix.
    total = max(total, len(facts.mistakes))
    shown = first_of(len(facts.mistakes), total, "mistake", order="the most confident first")
    about = "Where the model is very sure, the label may be what is wrong."
    items = [_make_card(mistake) for mistake in facts.mistakes]
    return paragraph(f"{shown}. {about}") + cards(
        items, style="gallery", open_=_OPEN, things="mistakes"
    )


def _make_card(mistake: Mistake) -> str:
    confidence = percent(mistake.confidence)
    alt = f"{mistake.label} taken for {mistake.predicted} with {confidence}, {mistake.filename}"
    return (
        f"{framed(mistake.picture, alt, side=144)}"
        f"{_describe('True', mistake.label, percent(mistake.probability))}"
        f"{_describe('Predicted', mistake.predicted, confidence)}"
        f'<p class="name"><small>{clip(mistake.filename, most=120)}</small></p>'
    )


def _describe(role: str, label: str, probability: str) -> str:
    return (
        f'<p class="answer"><small>{role}</small> <small>{probability}</small> '
        f"<strong>{clip(label)}</strong></p>"
    )

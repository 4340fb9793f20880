"""What the model sees of each class, and what augmentation makes of it."""

from __future__ import annotations

from itertools import zip_longest

from components.images.thumbnails import Picture
from components.report.facts import ClassSample, ReportFacts
from components.report.page.elements import (
    clip,
    details,
    figure,
    first_of,
    paragraph,
    picture,
)

_OPEN = 12
_SIDE = 76

_AUGMENTED = (
    "In the upper row images as the model sees them, below each the same image as a training step "
    "may see it, augmented."
)
_UNCHANGED = "Images as the model sees them; training does not augment them."


def write_samples(facts: ReportFacts) -> str:
    """Write a grid of pictures for each class."""
    if not facts.samples:
        return paragraph("There are no samples.")
    labels = {label for counts in facts.balance.values() for label in counts}
    shown = first_of(
        len(facts.samples), max(len(labels), len(facts.samples)), "class", many="classes"
    )
    changed = any(sample.augmented != sample.seen for sample in facts.samples)
    about = _AUGMENTED if changed else _UNCHANGED
    grids = [_show_class(sample, changed=changed) for sample in facts.samples]
    rest = grids[_OPEN:]
    return (
        paragraph(f"{shown}. {about}")
        + _set_grids(grids[:_OPEN])
        + (details(f"{len(rest):,} more classes", _set_grids(rest)) if rest else "")
    )


def _set_grids(grids: list[str]) -> str:
    return '<div class="samples">\n' + "\n".join(grids) + "\n</div>"


def _show_class(sample: ClassSample, *, changed: bool) -> str:
    pairs = zip_longest(sample.seen, sample.augmented if changed else ())
    shown = "".join(
        _show_pair(sample.label, place + 1, seen, augmented)
        for place, (seen, augmented) in enumerate(pairs)
    )
    pictures = f'<div class="pairs">{shown}</div>' if shown else paragraph("No picture.")
    return figure(pictures, clip(sample.label))


def _show_pair(label: str, place: int, seen: Picture | None, augmented: Picture | None) -> str:
    pictures = ((seen, "as the model sees it"), (augmented, "augmented"))
    shown = "".join(
        picture(image, f"{label}, image {place}, {what}", side=_SIDE)
        for image, what in pictures
        if image
    )
    return f"<div>{shown}</div>"

"""Suspects: images whose label, split or quality a person should look at."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from components.report.facts import ReportFacts
from components.report.suspects.shown import ShownSuspect

_REASONS: Mapping[str, str] = {
    "label": "The label is probably wrong",
    "near_duplicate": "Nearly the same as another image",
    "blank": "Blank: a single color",
    "odd_shape": "Odd shape: long and narrow",
    "tiny": "Tiny: enlarged for the model",
    "dark": "Very dark",
    "bright": "Very bright",
    "low_information": "Hardly any detail",
    "blurred": "Blurred",
    "outlier": "Unlike any training image",
    "gray": "Gray among color images",
}
_TITLES = {"label": "Labels that are probably wrong", "near_duplicate": "Near duplicates"}
_ODD = "Odd images"


class SuspectGroup(NamedTuple):
    """Suspects of a kind."""

    title: str
    shown: list[ShownSuspect]
    found: int


def describe_suspects(facts: ReportFacts) -> dict[str, Any]:
    """Group the suspects: labels, near duplicates, and odd images."""
    suspects = facts.suspects
    if suspects is None:
        return {"groups": (), "reasons": _REASONS}
    groups: dict[str, list[ShownSuspect]] = {title: [] for title in (*_TITLES.values(), _ODD)}
    counts = dict.fromkeys(groups, 0)
    for shown in suspects.shown:
        groups[_TITLES.get(shown.suspect.reason, _ODD)].append(shown)
    for reason, count in suspects.found.items():
        counts[_TITLES.get(reason, _ODD)] += count
    return {
        "groups": [
            SuspectGroup(title, shown, max(counts[title], len(shown)))
            for title, shown in groups.items()
            if shown
        ],
        "reasons": _REASONS,
    }

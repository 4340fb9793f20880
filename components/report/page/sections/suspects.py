"""Suspects: images whose label, split or quality a person should look at."""

from typing import Any, NamedTuple

from components.contract.suspects import REASONS
from components.report.facts import ReportFacts
from components.report.suspects.shown import ShownSuspect

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
        return {"groups": (), "reasons": REASONS}
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
        "reasons": REASONS,
    }

"""What a finding is, and what the checks share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from components.report.facts import ReportFacts

_NAMED = 3


@dataclass(frozen=True)
class Finding:
    """Something that stands out."""

    section: str
    """Section of the page with more on it."""
    text: str
    """The fact, with its number."""
    why: str
    """Why it matters."""
    advice: str
    """What to do about it."""


class UnknownError(Exception):
    """The facts lack what a check needs."""


def find_option(facts: ReportFacts, name: str) -> Any:
    """Return the value of an option, `section.field`.

    Raises:
        UnknownError: the run did not report it.
    """
    section, _, field = name.partition(".")
    try:
        return facts.header.config[section][field]
    except KeyError as error:
        raise UnknownError from error


def is_balanced(facts: ReportFacts) -> bool:
    """Return whether training weighs or draws all classes alike."""
    return bool(facts.header.config.get("training", {}).get("balance", "none") != "none")


def name_labels(labels: Sequence[str]) -> str:
    """Name up to three labels, and count the others."""
    more = f" and {len(labels) - _NAMED} more classes" if labels[_NAMED:] else ""
    return f"{', '.join(labels[:_NAMED])}{more}"

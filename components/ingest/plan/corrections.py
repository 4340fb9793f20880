"""Apply the corrections of a listing by the digest of each image; say what became of each one.

A new label never moves an image to another split, so that runs before and after are judged on the
same images: splits follow from the labels as given. Only the near duplicates of a removed image may
move, if it was the one that decided about their split.
"""

import collections
import difflib
import functools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from components.contract.artifact_files import open_file
from components.contract.example import CORRECTIONS_FILE, LABEL_IS_ALREADY
from components.contract.printable import quote
from components.ingest.source.corrections import Correction
from components.ingest.source.listing import Listing

_RESULTS = {"relabel": "relabeled", "remove": "removed", "keep": "kept", "unsure": "unsure"}
_NOT_APPLIED = "not_applied"
_NAMED = 5


class Match(NamedTuple):
    """A file whose content is named by a correction."""

    path: str
    label: str
    """As given by its folder or the manifest."""
    sha256: str


@dataclass(frozen=True)
class CorrectionOutcome:
    """What became of a correction."""

    correction: Correction
    result: str
    files: int
    """Number of files with this content."""
    reason: str
    """Why it was not applied, or empty."""

    def to_json(self) -> str:
        """Describe it in a line, with the names of the columns of the corrections file."""
        row = self.correction
        fields = {"sha256": row.sha256, "path": row.path, "action": row.action}
        fields |= {"from": row.from_label, "to": row.to_label}
        fields |= {"who": row.who, "when": row.when, "why": row.why}
        outcome = {"result": self.result, "files": self.files, "reason": self.reason}
        return json.dumps(fields | outcome)


def choose_labels(listing: Listing) -> dict[str, str | None]:
    """Return the digest of each image to correct → its new label, or None to remove it.

    Whether each fits is known only when all images have been read: see `judge`.
    """
    labels = listing.labels()
    return {
        row.sha256: row.decided
        for row in listing.corrections.rows
        if row.action == "remove" or (row.action == "relabel" and row.to_label in labels)
    }


def judge(
    listing: Listing, matches: Iterable[Match], rejected: Mapping[str, str]
) -> tuple[list[CorrectionOutcome], set[str]]:
    """Say what became of each correction, given the files that match, and path → category.

    Returns:
        The outcomes in the order of the corrections, and the digests of images whose new label
        must not be used, because they no longer have the label that was looked at.
    """
    labels = frozenset(listing.labels())
    found: dict[str, list[Match]] = {}
    for match in matches:
        found.setdefault(match.sha256, []).append(match)
    outcomes, applied, outdated = [], set(), set()
    for row in listing.corrections.rows:
        files = found.get(row.sha256, [])
        reason = _find_reason(row, files, labels, rejected)
        result = _NOT_APPLIED if reason else _RESULTS[row.action]
        outcomes.append(CorrectionOutcome(row, result, len(files), reason))
        if not reason:
            applied.add(row.sha256)
        elif files and _is_outdated(row, {file.label for file in files}):
            outdated.add(row.sha256)
    return outcomes, outdated - applied


def _is_outdated(row: Correction, given: set[str]) -> bool:
    """Return whether files have other labels than a person looked at, and than that one chose."""
    return row.from_label not in {"", *given} and given != {row.to_label}


def _find_reason(
    row: Correction, files: Sequence[Match], labels: frozenset[str], rejected: Mapping[str, str]
) -> str:
    """Return why a correction is not applied to these files, or nothing."""
    given = {file.label for file in files}
    if not files:
        return "no file has this content"
    if row.action == "relabel" and row.to_label not in labels:
        return _explain_unknown(row.to_label, labels)
    if all(file.path in rejected for file in files):
        return f"the file was rejected: {rejected[files[0].path]}"
    if row.action == "relabel" and given == {row.to_label}:
        return f"{LABEL_IS_ALREADY} {quote(row.to_label)}"
    if _is_outdated(row, given):
        return (
            f"the label is {' and '.join(map(quote, sorted(given)))}, not {quote(row.from_label)}"
        )
    return ""


@functools.lru_cache(1_000)  # Comparing with thousands of labels is slow.
def _explain_unknown(label: str, labels: frozenset[str]) -> str:
    close = difflib.get_close_matches(label, labels, 1)
    meant = f" (did you mean {quote(close[0])}?)" if close else ""
    return f"no class is called {quote(label)}{meant}: give a new class an image first"


def write_outcomes(rejects_uri: str, outcomes: Iterable[CorrectionOutcome]) -> None:
    """Write a line for each correction to the rejects."""
    with open_file(os.path.join(rejects_uri, CORRECTIONS_FILE), "w") as file:
        file.write("".join(outcome.to_json() + "\n" for outcome in outcomes))


def summarize(listing: Listing, outcomes: Sequence[CorrectionOutcome]) -> dict[str, Any]:
    """Count the outcomes, and name the first corrections that were not applied."""
    counts = collections.Counter(outcome.result for outcome in outcomes)
    missed = [outcome for outcome in outcomes if outcome.reason]
    return {
        "file": listing.corrections.path,
        "sha256": listing.corrections.digest,
        **{result: counts[result] for result in (*_RESULTS.values(), _NOT_APPLIED)},
        "reasons": [f"{of.correction.path}: {of.reason}" for of in missed[:_NAMED]],
    }

"""Corrections: what people decided about single images, named by the digest of each.

They are in a CSV file that people can edit and keep in git, and that other tools can write. A new
label never moves an image to another split, so that runs before and after are judged on the same
images: splits follow from the labels as given. Only the near duplicates of a removed image may
move, if it was the one that decided about their split.
"""

from __future__ import annotations

import collections
import csv
import hashlib
import io
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import astuple, dataclass, replace
from typing import Any, Literal, cast, get_args

from components.contract.errors import DataError
from components.contract.example import LABEL_IS_ALREADY
from components.contract.printable import disarm, quote, rearm
from components.ingest.source.manifest import explaining_table, open_csv
from components.storage.folder import read_bytes, replace_file

Action = Literal["keep", "relabel", "remove", "unsure"]

COLUMNS = ("sha256", "path", "action", "from", "to", "who", "when", "why")
_REQUIRED = COLUMNS[:5]
_HEADER = "sha256,path,action,from,to[,who][,when][,why]"
_ACTIONS = get_args(Action)
_DIGEST = re.compile("[0-9a-f]{64}")

_RESULTS = {"relabel": "relabeled", "remove": "removed", "keep": "kept", "unsure": "unsure"}
_NOT_APPLIED = "not_applied"
_NAMED = 5


@dataclass(frozen=True)
class Correction:
    """A decision about an image, and about all its copies."""

    sha256: str
    """Hexadecimal digest of the original file."""
    path: str
    """Where the image was; only for people."""
    action: Action
    from_label: str
    """The label when the image was looked at; if empty, the decision holds for any label."""
    to_label: str = ""
    """The new label, for `relabel`."""
    who: str = ""
    when: str = ""
    """ISO 8601."""
    why: str = ""

    @property
    def decided(self) -> str | None:
        """What the label should be: None to remove the image, "" if undecided."""
        labels = {"keep": self.from_label, "relabel": self.to_label, "remove": None}
        return labels.get(self.action, "")

    def after(self, earlier: Correction | None) -> Correction:
        """Return this decision about the label in the folder, which `earlier` had corrected.

        Who decides once more sees the corrected label.
        """
        if not earlier or earlier.action != "relabel" or self.from_label != earlier.to_label:
            return self
        label = self.to_label if self.action == "relabel" else self.from_label
        if self.action in ("keep", "relabel") and label != earlier.from_label:
            return replace(self, action="relabel", from_label=earlier.from_label, to_label=label)
        action: Action = "keep" if self.action == "relabel" else self.action
        return replace(self, action=action, from_label=earlier.from_label, to_label="")


@dataclass(frozen=True)
class Corrections:
    """All decisions of a file."""

    path: str = ""
    """Path or URL; empty if there are no corrections."""
    digest: str = ""
    """Hexadecimal SHA-256 of the file."""
    rows: tuple[Correction, ...] = ()


def load_corrections(path: str) -> Corrections:
    """Read a corrections file at a path or URL, in its order.

    Raises:
        DataError: a column or value is missing or wrong, or lines contradict each other.
        StorageError: the file cannot be read.
    """
    data = read_bytes(path)
    return Corrections(path, hashlib.sha256(data).hexdigest(), tuple(parse_corrections(data, path)))


def parse_corrections(data: bytes, path: str) -> list[Correction]:
    """Parse the content of the corrections file `path`, like `load_corrections`."""
    with explaining_table("corrections file", path):
        reader = open_csv(data, _REQUIRED, _HEADER)
        names = list(reader.fieldnames or ())
        if wrong := [name for name in names if name not in COLUMNS or names.count(name) > 1]:
            raise ValueError(
                f"its column {quote(wrong[0])} is unknown or occurs twice: its first line must be "
                f"{_HEADER}"
            )
        # The reader counts lines, which quoted values may contain, too, and skips empty ones.
        rows, end = [], 1
        for fields in reader:
            within = sum(str(value).count("\n") for value in fields.values())
            rows.append((max(end + 1, reader.line_num - within), fields))
            end = reader.line_num
    first: dict[str, tuple[int, Correction]] = {}
    corrections = []
    for line, fields in rows:
        if any(fields.values()):
            correction = _parse(fields, f"Line {line} of {path}")
            earlier, other = first.setdefault(correction.sha256, (line, correction))
            if correction.decided != other.decided:
                raise DataError(
                    f"Lines {earlier} and {line} of {path} contradict each other about the image "
                    f"{quote(correction.path or correction.sha256)}: keep one of them."
                )
            corrections.append(correction)
    return corrections


def _parse(fields: Mapping[Any, Any], line: str) -> Correction:
    if None in fields or None in fields.values():
        raise DataError(
            f"{line} has too {'many' if None in fields else 'few'} fields: quote values with "
            f"commas, and write empty values."
        )
    values = {name: rearm(value) for name, value in fields.items()}
    sha256, action = (values.pop(name).strip().lower() for name in ("sha256", "action"))
    if not _DIGEST.fullmatch(sha256):
        raise DataError(
            f"{line} has the sha256 {quote(sha256)}: write the 64 hexadecimal digits of the "
            f"file's SHA-256."
        )
    if action not in _ACTIONS:
        raise DataError(f"{line} has the action {quote(action)}: use {', '.join(_ACTIONS)}.")
    from_label, to_label = values.pop("from"), values.pop("to")
    if action == "relabel" and not to_label:
        raise DataError(f"{line} relabels an image, but `to` is empty: name the new label.")
    decided = cast(Action, action)
    return Correction(sha256, values.pop("path"), decided, from_label, to_label, **values)


def write_corrections(path: str, corrections: Iterable[Correction]) -> None:
    """Write the file at a path or URL, which is replaced completely or not at all.

    Raises:
        StorageError: it cannot be written.
    """
    text = io.StringIO()
    # Quoted, as some spreadsheets take a semicolon or tab for the end of a cell.
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in corrections:
        writer.writerow(map(disarm, astuple(row)))
    # Names that are not valid UTF-8 contain surrogates.
    replace_file(path, text.getvalue().encode("utf-8", "backslashreplace"))


@dataclass(frozen=True)
class CorrectionOutcome:
    """What became of a correction."""

    correction: Correction
    result: str
    files: int
    """Number of files with this content."""
    reason: str
    """Why it was not applied, or empty."""

    def to_dict(self) -> dict[str, Any]:
        """Describe it with the names of the columns of the corrections file."""
        row = dict(zip(COLUMNS, astuple(self.correction), strict=True))
        return row | {"result": self.result, "files": self.files, "reason": self.reason}


def choose_labels(corrections: Corrections, labels: Set[str]) -> dict[str, str | None]:
    """Return the digest of each image to correct → its label, or None to remove it.

    Whether each fits is known only when all images have been read: see `judge`.
    """
    return {
        row.sha256: row.decided
        for row in corrections.rows
        if row.decided is None or row.decided in labels
    }


def judge(
    corrections: Corrections, labels: Set[str], images: Mapping[str, Sequence[tuple[str, str]]]
) -> tuple[list[CorrectionOutcome], set[str]]:
    """Say what became of each correction.

    `images` is digest → label as given, and category of rejects or "", of each file with it.

    Returns:
        The outcomes in the order of the corrections, and the digests of images whose new label
        must not be used, because they no longer have the label that was looked at.
    """
    outcomes, applied, outdated = [], set(), set()
    for row in corrections.rows:
        files = images.get(row.sha256, ())
        reason = _find_reason(row, files, labels)
        result = _NOT_APPLIED if reason else _RESULTS[row.action]
        outcomes.append(CorrectionOutcome(row, result, len(files), reason))
        if not reason:
            applied.add(row.sha256)
        elif files and _is_outdated(row, {label for label, _ in files}):
            outdated.add(row.sha256)
    return outcomes, outdated - applied


def _is_outdated(row: Correction, given: set[str]) -> bool:
    """Return whether files have other labels than a person looked at, and than that one chose."""
    return row.from_label not in {"", *given} and given != {row.to_label}


def _find_reason(row: Correction, files: Sequence[tuple[str, str]], labels: Set[str]) -> str:
    """Return why a correction is not applied to these files, or nothing."""
    given = {label for label, _ in files}
    if not files:
        return "no file has this content"
    if row.action == "relabel" and row.to_label not in labels:
        return f"no class is called {quote(row.to_label)}: give a new class an image first"
    if row.action != "remove" and all(category for _, category in files):
        return f"the file was rejected: {files[0][1]}"
    if row.action == "relabel" and given == {row.to_label}:
        return f"{LABEL_IS_ALREADY} {quote(row.to_label)}"
    if _is_outdated(row, given):
        return (
            f"the label is {' and '.join(map(quote, sorted(given)))}, not {quote(row.from_label)}"
        )
    return ""


def summarize(corrections: Corrections, outcomes: Sequence[CorrectionOutcome]) -> dict[str, Any]:
    """Count the outcomes, and name the first corrections that were not applied."""
    counts = collections.Counter(outcome.result for outcome in outcomes)
    missed = [outcome for outcome in outcomes if outcome.reason]
    return {
        "file": corrections.path,
        "sha256": corrections.digest,
        **{result: counts[result] for result in (*_RESULTS.values(), _NOT_APPLIED)},
        "reasons": [f"{outcome.correction.path}: {outcome.reason}" for outcome in missed[:_NAMED]],
    }

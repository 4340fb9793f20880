"""The corrections file: what people decided about single images, named by the digest of each.

A CSV file that people can edit and keep in git, and that other tools can write.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

from components.contract.errors import DataError
from components.contract.printable import disarm, quote, rearm
from components.ingest.source.manifest import explaining_table, open_csv
from components.storage.folder import read_bytes, replace_file

Action = Literal["keep", "relabel", "remove", "unsure"]

COLUMNS = ("sha256", "path", "action", "from", "to", "who", "when", "why")
_REQUIRED = COLUMNS[:5]
_HEADER = "sha256,path,action,from,to[,who][,when][,why]"
_ACTIONS = get_args(Action)
_DIGEST = re.compile("[0-9a-f]{64}")


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
    """Read a corrections file like `read_corrections`, with its digest."""
    data = read_bytes(path)
    return Corrections(path, hashlib.sha256(data).hexdigest(), tuple(parse_corrections(data, path)))


def read_corrections(path: str) -> list[Correction]:
    """Read a corrections file at a path or URL, in its order.

    Raises:
        DataError: a column or value is missing or wrong, or lines contradict each other.
        StorageError: the file cannot be read.
    """
    return parse_corrections(read_bytes(path), path)


def parse_corrections(data: bytes, path: str) -> list[Correction]:
    """Parse the content of the corrections file `path`, like `read_corrections`."""
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
    found: dict[str, tuple[int, Correction]] = {}
    corrections = []
    for line, fields in rows:
        if any(fields.values()):
            correction = _parse(fields, f"Line {line} of {path}")
            earlier, other = found.setdefault(correction.sha256, (line, correction))
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
        cells = (row.sha256, row.path, row.action, row.from_label, row.to_label)
        writer.writerow(map(disarm, (*cells, row.who, row.when, row.why)))
    # Names that are not valid UTF-8 contain surrogates.
    replace_file(path, text.getvalue().encode("utf-8", "backslashreplace"))

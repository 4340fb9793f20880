"""Find the newest folders that a pattern such as `day-{YYYY}-{MM}-{DD}` matches."""

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from components.contract.errors import ConfigurationError, DataError
from components.storage.folder import list_folders

_PLACEHOLDER = re.compile(r"\{(SPAN|VERSION|YYYY|MM|DD)(?::(\d+))?\}")
_DATE = ("YYYY", "MM", "DD")
_DIGITS = {"YYYY": 4, "MM": 2, "DD": 2}
_EPOCH = datetime.date(1970, 1, 1)


@dataclass(frozen=True, order=True)
class Span:
    """A folder that matches a pattern; the newest has the largest numbers."""

    span: int
    """A number, or the days since 1970-01-01."""
    version: int | None
    folder: str


def find_spans(
    pattern: str, span: int | None = None, window: int | Literal["all"] = 1
) -> list[Span]:
    """Return the newest version of each of the last `window` spans, up to `span` if it is given.

    The placeholders are TFX's: `{SPAN}`, or `{YYYY}`, `{MM}` and `{DD}`, and also `{VERSION}`;
    `{SPAN:4}` has four digits. A folder without placeholders is span 0.

    Raises:
        ConfigurationError: the pattern is invalid.
        DataError: it matches nothing, or two folders of the same span.
    """
    names = [name for name, _ in _PLACEHOLDER.findall(pattern)]
    _check_pattern(pattern, names, span)
    if not names:
        return [Span(0, None, pattern)]
    matches = sorted(match for match in _matches(pattern) if span is None or match.span <= span)
    if not matches or (span is not None and matches[-1].span != span):
        wanted = f" with span {span}" if span is not None else ""
        raise DataError(f"No folder matches {pattern}{wanted}.")
    versions = {number: list(group) for number, group in groupby(matches, lambda match: match.span)}
    chosen = list(versions.values())[0 if window == "all" else -window :]
    for before, newest in (group[-2:] for group in chosen if group[1:]):
        if before.version == newest.version:
            raise DataError(
                f"{before.folder} and {newest.folder} are the same span of {pattern}: remove one."
            )
    return [group[-1] for group in chosen]


def find_root(pattern: str) -> str:
    """Return the folder above the first placeholder of a pattern, or raise `ConfigurationError`."""
    if not (first := _PLACEHOLDER.search(pattern)):
        raise ConfigurationError(
            f"ingest.window is set, but {pattern} has no {{SPAN}} or {{YYYY}}, {{MM}} and {{DD}}."
        )
    above, slash, _ = pattern[: first.start()].rpartition("/")
    return above or slash or "."


def describe_gaps(spans: Sequence[Span], window: int | Literal["all"]) -> list[str]:
    """Return notes on spans that are missing between others, and on a window without enough."""
    notes = []
    if missing := spans[-1].span - spans[0].span + 1 - len(spans):
        notes.append(
            f"{missing:,} spans are missing between {spans[0].folder} and {spans[-1].folder}."
        )
    if window != "all" and len(spans) < window:
        exist = "1 span exists" if len(spans) == 1 else f"{len(spans):,} spans exist"
        notes.append(f"ingest.window is {window:,}, but only {exist}.")
    return notes


def _check_pattern(pattern: str, names: list[str], span: int | None) -> None:
    if not names and span:
        raise ConfigurationError(
            f"ingest.span is {span}, but {pattern} has no {{SPAN}} or {{YYYY}}, {{MM}} and {{DD}}."
        )
    if len(set(names)) < len(names):
        raise ConfigurationError(f"{pattern} contains a placeholder twice.")
    if names and {*names} - {"VERSION"} not in ({"SPAN"}, {*_DATE}):
        raise ConfigurationError(f"{pattern} needs either {{SPAN}} or {{YYYY}}, {{MM}} and {{DD}}.")


def _matches(pattern: str) -> Iterator[Span]:
    """Yield the matches of a pattern; list only the folders above its placeholders."""
    scheme, separator, path = pattern.rpartition("://")
    for folder, values in _expand(scheme + separator, path.rstrip("/").split("/"), {}):
        span = values.get("SPAN")
        if span is None:
            try:
                day = datetime.date(values["YYYY"], values["MM"], values["DD"])
            except ValueError:  # A folder such as 2024-02-31 is not a date.
                continue
            span = (day - _EPOCH).days
        yield Span(span, values.get("VERSION"), folder)


def _expand(
    above: str, parts: list[str], values: Mapping[str, int]
) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Yield each folder below `above` that `parts` match, with the values of its placeholders."""
    fixed = next((i for i, part in enumerate(parts) if _PLACEHOLDER.search(part)), len(parts))
    above += "/".join(parts[:fixed])
    if fixed == len(parts):
        yield above, values
        return
    expression = _compile(parts[fixed])
    above += "/" if fixed else ""
    for name in list_folders(above):
        if match := expression.fullmatch(name):
            numbers = {key: int(value) for key, value in match.groupdict().items()}
            # The rest of the pattern starts with a slash.
            rest = ["", *parts[fixed + 1 :]] if parts[fixed + 1 :] else []
            yield from _expand(above + name, rest, {**values, **numbers})


def _compile(part: str) -> re.Pattern[str]:
    """Turn one part of a pattern into a regular expression."""
    text, end = "", 0
    for match in _PLACEHOLDER.finditer(part):
        name, width = match.group(1), match.group(2) or _DIGITS.get(match.group(1))
        digits = f"{{{width}}}" if width else "+"
        text += f"{re.escape(part[end : match.start()])}(?P<{name}>[0-9]{digits})"
        end = match.end()
    return re.compile(text + re.escape(part[end:]))

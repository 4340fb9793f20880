"""Markdown whose text may be anything: labels and folders come from the user's file names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from components.contract.printable import make_printable

# Entities where a backslash would not keep a renderer from seeing a tag or the end of a cell.
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;"}
# Those of the second half mean something at the start of a line only, as does a number with a dot.
_MARKUP = re.compile(r"[\\`*_\[\]~$]|^[#+=-]")
_NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")


def escape(text: str) -> str:
    """Return Markdown that shows `text` as it is, in one line, also in a cell of a table."""
    if not text or text != text.strip():
        # Markdown drops spaces at the ends, and takes some at the start for code.
        text = f"“{text}”"
    marked = _MARKUP.sub(r"\\\g<0>", make_printable(text))
    marked = _NUMBERED.sub(r"\1\\\2", marked)
    return "".join(_ENTITIES.get(character, character) for character in marked)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int = 1) -> str:
    """Write a table of cells that are Markdown already; columns after `texts` are numbers."""
    rule = ["---"] * texts + ["---:"] * (len(header) - texts)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))


def bullets(lines: Iterable[str]) -> str:
    """Write a list of lines that are Markdown already."""
    return "\n".join(f"- {line}" for line in lines)


def fence(text: str, language: str) -> str:
    """Write a block of code, which no run of backticks in it can end."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}{language}\n{text.rstrip()}\n{ticks}"


def dump_yaml(value: Any) -> str:
    """Write YAML in the order given; letters of any script as they are."""
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)
    return text

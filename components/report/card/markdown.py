"""Markdown whose text may be anything: labels and folders come from the user's file names."""

from __future__ import annotations

import re
from typing import Any

import yaml
from markupsafe import Markup

from components.contract.printable import make_printable

# Entities where a backslash would not keep a renderer from seeing a tag or the end of a cell.
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;"}
# Those of the second half mean something at the start of a line only, as does a number with a dot.
_MARKUP = re.compile(r"[\\`*_\[\]~$]|^[#+=-]")
_NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")


def escape(value: object) -> Markup:
    """Make Markdown that shows a text as it is, in one line, also in a cell of a table.

    Markdown, which is `Markup`, stays as it is.
    """
    if isinstance(value, Markup):
        return value
    text = str(value)
    if not text or text != text.strip():
        # Markdown drops spaces at the ends, and takes some at the start for code.
        text = f"“{text}”"
    marked = _MARKUP.sub(r"\\\g<0>", make_printable(text))
    marked = _NUMBERED.sub(r"\1\\\2", marked)
    return Markup("".join(_ENTITIES.get(character, character) for character in marked))


def fence(text: str, language: str) -> Markup:
    """Write a block of code, which no run of backticks in it can end."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    ticks = "`" * max(3, longest + 1)
    return Markup(f"{ticks}{language}\n{text.rstrip()}\n{ticks}")


def dump_yaml(value: Any) -> Markup:
    """Write YAML in the order given; letters of any script as they are."""
    return Markup(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100))

"""Escapes Markdown: labels and folders come from the user's file names."""

from __future__ import annotations

import re
from typing import Any

import yaml
from markupsafe import Markup

from components.contract.printable import make_printable

# Entities, where a backslash would not stop a tag or the end of a table cell.
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;"}
# The second half has a meaning only at the start of a line, as has a number with a dot.
_MARKUP = re.compile(r"[\\`*_\[\]~$]|^[#+=-]")
_NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")


def escape(value: object) -> Markup:
    """Return Markdown that shows a text literally in one line, also in a table cell.

    Markdown, which is `Markup`, stays unchanged.
    """
    if isinstance(value, Markup):
        return value
    text = str(value)
    if not text or text != text.strip():
        # Markdown drops spaces at the ends, and reads some at the start as code.
        text = f"“{text}”"
    marked = _MARKUP.sub(r"\\\g<0>", make_printable(text))
    marked = _NUMBERED.sub(r"\1\\\2", marked)
    return Markup("".join(_ENTITIES.get(character, character) for character in marked))


def fence(text: str, language: str) -> Markup:
    """Write a code block that no backticks in the text can end."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    ticks = "`" * max(3, longest + 1)
    return Markup(f"{ticks}{language}\n{text.rstrip()}\n{ticks}")


def dump_yaml(value: Any) -> Markup:
    """Write YAML in the given order, with Unicode letters."""
    return Markup(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100))

"""Rows of a title and a text, as every command prints them.

What stands in them may be the name of a file: nothing in it acts on the terminal.
"""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from components.contract.printable import make_printable

INDENT = 13
"""Characters before the text of a row: the longest title, and a space."""

# Narrower than this, words no longer fit.
_NARROWEST = 20


def print_row(
    console: Console, title: str, text: str, *, indent: int = INDENT, style: str = "bold"
) -> None:
    """Print a row whose lines end between words, below each other; elsewhere it is one line.

    Args:
        console: a terminal, or anything else.
        title: in the first line.
        text: on a terminal, as many lines as it takes.
        indent: characters before the text.
        style: of the title.
    """
    for number, line in enumerate(wrap(console, text, indent=indent)):
        _print(console, "" if number else title, line, indent, style)


def print_whole(
    console: Console, title: str, text: str, *, indent: int = INDENT, style: str = "bold"
) -> None:
    """Print a row in one line, however long: commands and paths are there to be copied."""
    _print(console, title, make_printable(text), indent, style)


def wrap(console: Console, text: str, *, indent: int = 0) -> list[str]:
    """Divide a text into lines that fit on a terminal; elsewhere it stays one."""
    text = make_printable(text)
    if not console.is_terminal:
        return [text]
    width = max(console.width - indent - 1, _NARROWEST)
    return [line.plain.rstrip() for line in Text(text).wrap(console, width)] or [""]


def _print(console: Console, title: str, line: str, indent: int, style: str) -> None:
    console.print(Text.assemble((f"{title:<{indent}}", style), line), soft_wrap=True)

"""Rows of a title and a text, in which control characters of file names are escaped."""

from rich.console import Console
from rich.text import Text

from components.contract.printable import make_printable

INDENT = 13
"""Width of the titles: the longest title and a space."""

# Words do not fit in less.
_NARROWEST = 20


def print_row(
    console: Console, title: str, text: str, *, indent: int = INDENT, style: str = "bold"
) -> None:
    """Print a row, wrapped between words on a terminal, else on one line."""
    for number, line in enumerate(wrap(console, text, indent=indent)):
        _print(console, "" if number else title, line, indent, style)


def print_whole(
    console: Console, title: str, text: str, *, indent: int = INDENT, style: str = "bold"
) -> None:
    """Print a row on one line, however long, so that commands and paths can be copied."""
    _print(console, title, make_printable(text), indent, style)


def wrap(console: Console, text: str, *, indent: int = 0) -> list[str]:
    """Wrap a text to the width of a terminal; return it as one line for other outputs."""
    text = make_printable(text)
    if not console.is_terminal:
        return [text]
    width = max(console.width - indent - 1, _NARROWEST)
    return [line.plain.rstrip() for line in Text(text).wrap(console, width)] or [""]


def _print(console: Console, title: str, line: str, indent: int, style: str) -> None:
    console.print(Text.assemble((f"{title:<{indent}}", style), line), soft_wrap=True)

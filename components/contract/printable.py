"""Format values for display: text from the user, such as file names, and durations."""

import re
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80

_LONGEST_PATH = 500


# A user name with a password, in HTTP also a token alone; other stores have a container there.
_LOGIN = re.compile(r"((?<=http://)|(?<=https://))[^/@\s]+@|(?<=://)[^/@:\s]*:[^/@\s]+@")


def hide_login(text: str) -> str:
    """Remove user names and passwords from the URLs in a text."""
    return _LOGIN.sub("", text)


def make_printable(text: str) -> str:
    """Escape non-printable characters: line ends, control characters, undecodable bytes.

    Passwords in URLs are left out.
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in hide_login(text))


def quote(value: Any) -> str:
    """Quote a value as in YAML or Python, shortened to 80 characters."""
    if value is None:
        return "null"
    try:
        return _SHORT.repr(hide_login(value) if isinstance(value, str) else value)
    except ValueError:
        return "a number of thousands of digits"


def quote_path(path: str) -> str:
    """Quote a path, whole unless it is longer than those of most systems."""
    return repr(path) if len(path) <= _LONGEST_PATH else quote(path)


def name_some(names: Sequence[str], most: int) -> str:
    """Join the first `most` names, and count the others: "a, b and 3 more"."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def format_duration(seconds: float) -> str:
    """Format a duration in its two largest units, such as "1 h 23 min"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"


def describe_corrections(counts: Mapping[str, Any]) -> str:
    """Name the numbers of corrections by result, such as "2 relabeled, 1 not applied"."""
    results = ("relabeled", "removed", "kept", "unsure", "not_applied")
    named = (
        f"{counts[result]:,} {result.replace('_', ' ')}" for result in results if counts.get(result)
    )
    return ", ".join(named) or "none"


# As the OWASP Foundation lists them under "CSV Injection".
_FORMULA = tuple("=+-@\t\r\n'＝＋－＠")


def disarm(cell: str) -> str:
    """Put an apostrophe before a text that a spreadsheet would run as a formula.

    Also before one that starts with an apostrophe, so that `rearm` restores every text.
    """
    return f"'{cell}" if cell.startswith(_FORMULA) else cell


def rearm(cell: str) -> str:
    """Undo `disarm`; a text that a person wrote without it stays as it is."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULA) else cell


_MOST_DIGITS = 18


def read_number(text: str) -> int | None:
    """Return the whole number that a name consists of; None for other text, such as "²"."""
    is_number = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return int(text) if is_number else None


def describe_bytes(size: float) -> str:
    """Return a number of bytes in a unit that people read, such as "1.5 MiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"

"""Text of the user's, such as names of files, made fit to be shown."""

from __future__ import annotations


def make_printable(text: str) -> str:
    """Spell out what has no shape of its own: line ends, control characters, bytes of no text."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)

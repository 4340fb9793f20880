"""Values made fit to be shown: text of the user's, such as names of files, and durations."""

from __future__ import annotations


def make_printable(text: str) -> str:
    """Spell out what has no shape of its own: line ends, control characters, bytes of no text."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def format_duration(seconds: float) -> str:
    """Write a duration in its two largest units, such as "1 h 23 min"; tenths below a minute."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"

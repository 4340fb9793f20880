"""Patterns of folders such as `day-{YYYY}-{MM}-{DD}`."""

import re

from components.contract.errors import ConfigurationError

PLACEHOLDER = re.compile(r"\{(SPAN|VERSION|YYYY|MM|DD)(?::(\d+))?\}")
DATE = ("YYYY", "MM", "DD")
_DIGITS = {"YYYY": 4, "MM": 2, "DD": 2}


def find_root(pattern: str) -> str:
    """Return the folder above the first placeholder of a pattern, or raise `ConfigurationError`."""
    if not (first := PLACEHOLDER.search(pattern)):
        raise ConfigurationError(
            f"ingest.window is set, but {pattern} has no {{SPAN}} or {{YYYY}}, {{MM}} and {{DD}}."
        )
    above, slash, _ = pattern[: first.start()].rpartition("/")
    return above or slash or "."


def compile_part(part: str) -> re.Pattern[str]:
    """Turn one part of a pattern into a regular expression."""
    text, end = "", 0
    for match in PLACEHOLDER.finditer(part):
        name, width = match.group(1), match.group(2) or _DIGITS.get(match.group(1))
        digits = f"{{{width}}}" if width else "+"
        text += f"{re.escape(part[end : match.start()])}(?P<{name}>[0-9]{digits})"
        end = match.end()
    return re.compile(text + re.escape(part[end:]))

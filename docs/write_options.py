"""Writes docs/reference/options.md from the configuration: `python -m docs.write_options`."""

import dataclasses
import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from components.contract.error_messages import describe
from pipeline_def.config.options import Option, list_fields, list_options, list_sections

PAGE = Path(__file__).parent / "reference" / "options.md"

_INTRODUCTION = """\
# Options

Set an option on the command line (`--training.epochs 5`) or in a YAML file for `--config`
(`training: {epochs: 5}`), whose relative paths start in the current folder. Parentheses show its
choices and default. The full text, with limits and reasons, is in `uv run local_runner.py --help
training.epochs`. `uv run python -m docs.write_options` generates this page.
"""

# Kinds that the sentence shows.
_UNSAID = ("text", "a list", "text for each name")


def render() -> str:
    """Return the page in Markdown."""
    options = list(list_options().values())
    lines = [_INTRODUCTION, *(_describe(option) for option in options if not option.section)]
    for section in list_sections():
        lines += ["", f"## {section}", ""]
        lines += [_describe(option) for option in options if option.section == section]
        lines += [
            line for option in options if option.section == section for line in _nested(option)
        ]
    return "\n".join(lines) + "\n"


def _nested(option: Option) -> Iterator[str]:
    """Yield the names of the fields of what an option holds a list or a mapping of."""
    if fields := list_fields(option):
        names = ", ".join(f"`{field.name.removeprefix(f'{option.name}.')}`" for field in fields)
        yield "\n" + _fill(f"Fields of `{option.name}`: {names}.", "")


def _describe(option: Option) -> str:
    # The first sentence, up to a semicolon outside of parentheses, without an example at its end.
    sentence = re.split(r"(?<=\.) |; (?![^(]*\))", option.text)[0].rstrip(".")
    sentence = re.sub(r", such as [^,]*$", "", sentence)
    facts = _facts(option)
    known = "" if facts in _UNSAID else f" ({facts})"
    return _fill(f"- `{option.name}`{known}: {sentence}", "  ")


def _fill(text: str, indent: str) -> str:
    return textwrap.fill(
        text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _facts(option: Option) -> str:
    """Return the choices and the default; without a default the type, or the limits."""
    kind, default = describe(option.kind).partition(", such as")[0], option.default
    limits = re.sub(r"^a (whole )?number (from|of at least|above) ", r"\2 ", kind)
    limits = limits.removeprefix("from ").removeprefix("of ")
    if default is dataclasses.MISSING:
        return f"{limits}; required"
    if default in (None, "", [], {}):
        return limits
    shown = f"`{default if isinstance(default, str) else json.dumps(default, default=str)}`"
    has_choices = limits == kind and " or " in kind and kind != "true or false"
    return f"{limits}; {shown}" if has_choices else shown


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    print(PAGE)

"""The help: a screen for each command, and every option with its default and the reason for it."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Collection, Iterator, Sequence

import yaml

from components.contract.errors import ConfigurationError
from components.contract.kinds import describe_kind
from pipeline_def.config.mistakes import find_meant
from pipeline_def.config.options import (
    Option,
    list_fields,
    list_options,
    list_sections,
)

_WIDTH = 80
_FLAGS = ("-h", "--help")


def answer(arguments: Sequence[str], screen: str, *, prog: str, hidden: Collection[str]) -> bool:
    """Print the help that the arguments ask for; return whether they ask for any.

    `--help` prints the screen; with the name of a section or of an option after it, those of its
    options; `--help-all` prints all options.

    Args:
        arguments: of the command line.
        screen: text of the command.
        prog: name of the command.
        hidden: options that the command does not have.

    Raises:
        ConfigurationError: there is no such section or option.
    """
    if "--help-all" in arguments:
        print(screen.strip())
        print(*_describe(_list_shown(hidden)), sep="\n")
        return True
    asked = next((place for place, one in enumerate(arguments) if one in _FLAGS), None)
    if asked is None:
        return False
    shown = _list_shown(hidden)
    topic = next(iter(arguments[asked + 1 :]), "").removeprefix("--")
    if not topic:
        print(screen.strip())
        if any(option.section for option in shown):
            print(f"\n{_describe_more(prog)}")
        return True
    chosen = [option for option in shown if topic in (option.name, option.section)]
    if not chosen:
        meant = find_meant(topic, [*list_sections(), *list_options()])
        hint = f"did you mean {' or '.join(meant)}?" if meant else f"see {prog} --help."
        raise ConfigurationError(f"There is no help on {topic}: {hint}")
    fields = list_fields(chosen[0]) if len(chosen) == 1 else []
    print(*_describe(chosen), *_describe(fields), sep="\n")
    return True


def _list_shown(hidden: Collection[str]) -> list[Option]:
    """Return the options that a command has, those of no section first."""
    shown = [option for option in list_options().values() if option.name not in hidden]
    return sorted(shown, key=lambda option: bool(option.section))


def _describe_more(prog: str) -> str:
    names = ", ".join(list_sections())
    text = f"{prog} --help SECTION, of {names}; or --help-all."
    return textwrap.fill(f"More options: {text}", _WIDTH, break_on_hyphens=False)


def _describe(options: Sequence[Option]) -> Iterator[str]:
    section = None
    for option in options:
        if option.section != section and option.section in list_sections():
            yield f"\n{option.section}: {list_sections()[option.section]}"
        section = option.section
        yield ""
        dashes = "--" if option.name in list_options() else ""
        kind = textwrap.wrap(
            f"{dashes}{option.name}  {describe_kind(option.kind)}; {_describe_default(option)}",
            _WIDTH,
            initial_indent="  ",
            subsequent_indent="      ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        yield from kind
        yield textwrap.fill(
            option.text, _WIDTH, initial_indent="      ", subsequent_indent="      "
        )


def _describe_default(option: Option) -> str:
    if option.default is dataclasses.MISSING:
        return "needed"
    if option.default in (None, ""):
        return "default unset"
    text = yaml.safe_dump(option.default, default_flow_style=True, width=1000).strip()
    return f"default {text.removesuffix('...').strip()}"

"""What is wrong with an option or a configuration file, in a sentence that says what was meant."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

import yaml

from components.contract.errors import ConfigurationError
from components.contract.kinds import describe_kind, show, without_none
from pipeline_def.config.options import (
    field_names,
    find_kind,
    list_options,
    list_sections,
)
from pipeline_def.config.yaml_file import check_size, read_yaml

_MOST_MEANT = 3
_LONGEST_QUOTE = 80


def check_arguments(prog: str, arguments: Sequence[str], known: Collection[str]) -> None:
    """Raise `ConfigurationError` for an option that does not exist.

    Args:
        prog: name of the command.
        arguments: of the command line.
        known: options, without their dashes.
    """
    for argument in arguments:
        name = argument[2:].partition("=")[0].rstrip("+")
        if not argument.startswith("--") or name in known or _is_key(name):
            continue
        meant = " or ".join(f"--{one}" for one in find_meant(name, known))
        hint = f"did you mean {meant}?" if meant else f"{prog} --help-all lists them all."
        raise ConfigurationError(f"There is no option --{name}: {hint}")


def check_values(arguments: Sequence[str]) -> None:
    """Raise `ConfigurationError` for a value, which may be YAML, that stands for too much."""
    for argument in arguments:
        # What is no YAML is text.
        with contextlib.suppress(yaml.YAMLError):
            check_size(
                argument.partition("=")[2] if argument.startswith("--") else argument,
                argument[:_LONGEST_QUOTE],
            )


def _is_key(name: str) -> bool:
    """Whether a name is that of an entry of an option that holds entries by name."""
    options = list_options().values()
    return any(name.startswith(f"{one.name}.") and _holds_entries(one.kind) for one in options)


def _holds_entries(kind: Any) -> bool:
    kinds = (kind, *get_args(kind))
    return any(isinstance(of := get_origin(k), type) and issubclass(of, Mapping) for k in kinds)


def find_meant(name: str, known: Iterable[str]) -> list[str]:
    """Return what a wrong name may have been meant to be; the best first."""
    known = list(known)
    last = name.rpartition(".")[2]
    same = [one for one in known if one.rpartition(".")[2] == last]
    if same:
        # Of the section that was most likely meant, if one was named.
        same.sort(key=lambda one: -difflib.SequenceMatcher(None, name, one).ratio())
        return same[: 1 if "." in name else _MOST_MEANT]
    by_last: dict[str, list[str]] = {}
    for one in known:
        by_last.setdefault(one.rpartition(".")[2], []).append(one)
    whole = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    close = difflib.get_close_matches(last, by_last, n=1, cutoff=0.75)
    return whole or [one for of in close for one in by_last[of]][:_MOST_MEANT]


def check_file(path: str) -> bool:
    """Check the names and sections of a configuration file; return whether it says anything.

    Raises:
        ConfigurationError: the file cannot be read, is no YAML, or names what does not exist.
    """
    found = read_yaml(path)
    if found is None:
        return False
    if not isinstance(found, dict):
        raise ConfigurationError(
            f"{path} must hold options by their names, such as `training: {{epochs: 3}}`."
        )
    known = {*list_options(), *list_sections()}
    for name, value in _flatten(found):
        if name not in known and not _is_key(name):
            meant = find_meant(name, known)
            hint = f"did you mean {' or '.join(meant)}?" if meant else "see --help-all."
            raise ConfigurationError(f"{path}: there is no option {name}: {hint}")
        if name in list_sections():
            held = "empty" if value is None else show(value)
            raise ConfigurationError(
                f"{path}: {name} is {held}, but it is a section: write its options below it, "
                f"such as `{name}: {{{_first_option(name)}: …}}`."
            )
    return True


def _first_option(section: str) -> str:
    return next(o.name.rpartition(".")[2] for o in list_options().values() if o.section == section)


def _flatten(found: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each option of a file with its value; the options of a section one by one."""
    for key, value in found.items():
        name = f"{prefix}{key}"
        if name in list_sections() and isinstance(value, dict):
            yield from _flatten(value, f"{name}.")
        else:
            yield name, value


_KEY = re.compile(r'(?:Parser key|Group) ["\'](.+?)["\']:? ')
_VALUES = (re.compile(r"Given value: (.*)$"), re.compile(r"Got value: (.*)$"))
_FIELD = re.compile(r"(?:[Oo]ption) '(.+?)' is not accepted|does not accept option '(.+?)'")
_STRAY = re.compile(r"unrecognized arguments: (.*)\.$")
_TOO_FEW = re.compile(r"argument (--\S+): expected (\d+) arguments")
_NO_VALUE = re.compile(r"argument (--\S+): expected (?:one|at least one) argument")


def explain(message: str) -> str:
    """Say in our words what the parser of the command line says in Python's.

    Args:
        message: of jsonargparse, in one line.
    """
    if stray := _STRAY.search(message):
        return f"{stray[1]} is no option, and there is nothing that it could be the value of."
    if few := _TOO_FEW.search(message):
        return f"{few[1]} needs {few[2]} values, one after the other."
    if missing := _NO_VALUE.search(message):
        kind = describe_kind(find_kind(missing[1][2:]))
        return f"{missing[1]} needs a value{f': {kind}' if kind != 'text' else ''}."
    path = ".".join(dict.fromkeys(_KEY.findall(message)))
    if path in list_sections():
        return f"{path} is a section: set its options, such as --{path}.{_first_option(path)}."
    if path and (unknown := _FIELD.search(message)):
        name = unknown[1] or unknown[2]
        meant = find_meant(name, field_names(path))
        hint = f"did you mean {meant[0]}?" if meant else f"it has {', '.join(field_names(path))}."
        return f"{path} has no field {name}: {hint}"
    expected = without_none(find_kind(path)) if path else None
    if expected is None:
        return message
    found = next(filter(None, (pattern.search(message) for pattern in _VALUES)), None)
    if not found:
        return f"{path} must be {describe_kind(expected)}."
    given = found[1].strip().removesuffix(".").strip("'\"")
    if len(given) > _LONGEST_QUOTE:
        given = f"{given[:_LONGEST_QUOTE]}…"
    if get_origin(expected) is list and "Literal" in message:
        [expected] = get_args(expected)
    choices = get_args(expected) if get_origin(expected) is Literal else ()
    meant = find_meant(given, map(str, choices))
    hint = f"did you mean {meant[0]}? " if meant else ""
    must = "It can be" if meant else "it must be"
    return f"{path} is {given}: {hint}{must} {describe_kind(expected)}."

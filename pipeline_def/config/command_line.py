"""Reads the command line and YAML files into the configuration."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar, get_origin

import yaml

from components.contract.configuration import from_dict
from components.contract.error_messages import accepts, did_you_mean, find_field, strip
from components.contract.errors import ConfigurationError
from components.contract.printable import quote, read_number
from pipeline_def.config.config import Config
from pipeline_def.config.options import Option, list_options, list_sections, print_requested_help
from pipeline_def.config.yaml_file import parse_yaml, read_text

_Owner = TypeVar("_Owner")


def parse(
    arguments: Sequence[str],
    *,
    prog: str,
    usage: str,
    only: Collection[str] | None = None,
    extra: Mapping[str, int] | None = None,
    positional: str = "",
) -> tuple[Config, dict[str, Any]]:
    """Read the command line of a command, with the files that `--config FILE` names.

    An option on the command line overrides the same option in a file, and a later one an earlier.

    Args:
        arguments: after the name of the command.
        prog: name of the command.
        usage: what `--help` prints first.
        only: options of the configuration that the command has; None: all of them.
        extra: the command's other options → how many values each takes.
        positional: key of the arguments without an option; "": there are none.

    Returns:
        The configuration, and the values of `extra`: None, text, a list, or for flags a bool; those
        of `positional` are a list.

    Raises:
        ConfigurationError: an option is unknown, or its value is not allowed.
        SystemExit: after --help.
    """
    extra = extra or {}
    options = {n: option for n, option in list_options().items() if only is None or n in only}
    if print_requested_help(arguments, usage, prog=prog, options=options):
        raise SystemExit(0)
    others = {"config": 1, **extra}
    known = {**dict.fromkeys(options, 1), **others}
    words = list(_split(arguments, prog, known, positional))
    config = _build(
        files=[values[0] for name, values in words if name == "config"],
        words=[(name, values[0]) for name, values in words if name not in (*others, positional)],
    )
    chosen = {name: values for name, values in words if name in others}
    values = {name: _get_value(chosen, name, count) for name, count in extra.items()}
    if positional:
        values[positional] = [word for name, typed in words if name == positional for word in typed]
    return config, values


def parse_plain(
    arguments: Sequence[str], owner: Callable[..., _Owner], *, screen: str, prog: str
) -> _Owner:
    """Read the command line of a command that has the fields of `owner` as its only options.

    Raises:
        ConfigurationError: an option is unknown, or its value is not allowed.
        SystemExit: after --help, which prints `screen`.
    """
    if {"-h", "--help", "--help-all"} & set(arguments):
        print(screen.strip())
        raise SystemExit(0)
    known = {name: int(option.kind is not bool) for name, option in list_options(owner).items()}
    words = _split(arguments, prog, known)
    return owner(
        **{name: _read_value(name, *given or ["true"], owner=owner) for name, given in words}
    )


def _split(
    arguments: Sequence[str], prog: str, known: Mapping[str, int], positional: str = ""
) -> Iterator[tuple[str, list[str]]]:
    """Yield each option with its values, as many as `known` says.

    With `positional`, yield that name with each argument without an option, also all after `--`.
    """
    words = list(arguments)[::-1]
    while words:
        word = words.pop()
        if positional and word == "--":
            yield from ((positional, [word]) for word in reversed(words))
            return
        if positional and not word.startswith("-"):
            yield positional, [word]
            continue
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            hint = did_you_mean(name, known, prefix="--") if equals else ""
            hint = hint or f" See {prog} --help."
            raise ConfigurationError(f"Unexpected argument {quote(word)}.{hint}")
        if name in list_sections() and name not in known:
            raise ConfigurationError(_describe_section(name))
        if (option := _find_option(name, known)) is None:
            plain = name.replace("-", "_")
            if (option := _find_option(plain, known)) is None:
                hint = did_you_mean(plain, known, prefix="--") or f" See {prog} --help-all."
                raise ConfigurationError(f"Unknown option '--{name}'.{hint}")
            name = plain
        values = _take_values(words, known[option], [value] if equals else [])
        if len(values) < known[option] or (name == "config" and not values[0]):
            wanted = "a value" if known[option] == 1 else f"{known[option]} values"
            raise ConfigurationError(f"--{name} needs {wanted}.")
        yield name, values


def _take_values(words: list[str], count: int, values: list[str]) -> list[str]:
    """Return the values of an option, taken from the words after it; a flag's is true or false."""
    if count == 0 and not values and words[-1:] in (["true"], ["false"]):
        return [words.pop()]
    while len(values) < count and words and not words[-1].startswith("--"):
        values.append(words.pop())
    return values


def _find_option(name: str, known: Collection[str]) -> str | None:
    """Return the option that a name stands for: itself, or with a key after it."""
    if name in known:
        return name
    option, _ = _find_holder(name)
    return option.name if option and option.name in known else None


def _find_holder(name: str) -> tuple[Option | None, list[str]]:
    """Return the option that `name` is, or the mapping that `option.key` names, and the keys."""
    for option in list_options().values():
        if option.name == name:
            return option, []
        if get_origin(strip(option.kind)) is dict and name.startswith(f"{option.name}."):
            return option, name.removeprefix(f"{option.name}.").split(".")
    return None, []


def _describe_section(name: str) -> str:
    first = next(option.name for option in list_options().values() if option.section == name)
    return f"{name} is a section: set its options, such as {first}."


def _read_value(name: str, text: str, *, owner: Any = Config) -> Any:
    """Return the value of an option: text as it is, or parsed as YAML where it is not text."""
    path = name.split(".")
    _, kind = find_field(owner, path)
    if accepts(kind, str):
        if text == "null" and accepts(kind, None):
            return None
        if text in ("true", "false") and accepts(kind, bool):
            return text == "true"
        number = read_number(text) if accepts(kind, int) else None
        return text if number is None else number
    try:
        return parse_yaml(text, quote(text))
    except ConfigurationError as error:
        # Text that is not YAML fails the check of its type.
        if isinstance(error.__cause__, yaml.YAMLError | ValueError):
            return text
        raise


def _set(values: dict[str, Any], name: str, value: Any) -> None:
    """Set an option, or an entry of a mapping (`name.key`)."""
    option, keys = _find_holder(name)
    assert option is not None
    target = values
    for outer, inner in zip([option.name, *keys], keys, strict=False):
        target[outer] = dict(target[outer]) if isinstance(target.get(outer), dict) else {}
        target, name = target[outer], inner
    target[name] = value


def read_file(path: str) -> dict[str, Any]:
    """Return the options of a configuration file by name.

    Raises:
        ConfigurationError: the file cannot be read, is not YAML, or has an unknown option.
    """
    content = parse_yaml(read_text(path), path)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigurationError(
            f"{path} must contain options by name, such as `training: {{epochs: 3}}`."
        )
    values: dict[str, Any] = {}
    names: list[str] = []
    for name, value in _flatten(content):
        for other in names:
            if f"{name}.".startswith(f"{other}.") or other.startswith(f"{name}."):
                raise ConfigurationError(f"{path} sets {other} and {name}: set it in one place.")
        names.append(name)
        if name in list_sections():
            held = "empty" if value is None else quote(value)
            raise ConfigurationError(f"{path}: {name} is {held}, but {_describe_section(name)}")
        if _find_option(name, list_options()) is None:
            hint = did_you_mean(name, {*list_options(), *list_sections()}) or " See --help-all."
            raise ConfigurationError(f"{path}: unknown option '{name}'.{hint}")
        _set(values, name, value)
    return values


def _flatten(content: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each option of a file with its value, those of sections one by one."""
    for key, value in content.items():
        name = f"{prefix}{key}"
        if name in list_sections() and isinstance(value, dict):
            yield from _flatten(value, f"{name}.")
        else:
            yield name, value


def _build(files: Sequence[str], words: Sequence[tuple[str, str]]) -> Config:
    """Make the configuration from files, and from options with their values as typed."""
    chosen: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for path in files:
        values = read_file(path)
        chosen |= values
        sources |= dict.fromkeys(values, path)
    for name, text in words:
        _set(chosen, name, _read_value(name, text))
        sources.pop(name, None)
    fields: dict[str, Any] = {"given": sorted(chosen)}
    for name, value in chosen.items():
        section, _, field = name.rpartition(".")
        (fields.setdefault(section, {}) if section else fields)[field] = value
    try:
        return from_dict(Config, fields)
    except ConfigurationError as error:
        for name, path in sources.items():
            if str(error).startswith(tuple(f"{name}{end}" for end in (" ", ".", "["))):
                raise ConfigurationError(f"{path}: {error}") from None
        raise


def _get_value(chosen: Mapping[str, list[str]], name: str, count: int) -> Any:
    values = chosen.get(name)
    if count == 0:
        given = values[0] if values else "true"
        if given.lower() not in ("true", "false"):
            raise ConfigurationError(f"--{name} is {quote(given)}: it must be true or false.")
        return values is not None and given.lower() == "true"
    return values[0] if values and count == 1 else values

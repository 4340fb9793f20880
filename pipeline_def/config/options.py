"""The options of a configuration class as data, the help printed from them, and their effect."""

import ast
import dataclasses
import functools
import inspect
import itertools
import operator
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from components.contract.error_messages import describe, did_you_mean, get_fields, strip
from components.contract.errors import ConfigurationError
from components.contract.rules_of_thumb import OWN_NETWORKS
from components.trainer.config.recipes import RECIPES, Recipe
from pipeline_def.config.config import Config
from pipeline_def.config.yaml_file import write_yaml

_WIDTH = 80
# More images than any recipe distinguishes.
_MANY = 10**9
_FLAGS = ("-h", "--help")


@dataclass(frozen=True)
class Option:
    """A field of the configuration."""

    name: str
    """`section.field`, or `field` outside the sections."""
    kind: Any
    """Its type, with constraints."""
    default: Any
    """`dataclasses.MISSING` if the field is required."""
    text: str
    """What it does, its unit, and the reason for its default."""

    @property
    def section(self) -> str:
        """Its section; "" for options outside the sections."""
        return self.name.rpartition(".")[0]


@functools.cache
def list_options(owner: Any = Config) -> Mapping[str, Option]:
    """Return the options of a configuration class by name, in the order of their definition."""
    return {option.name: option for option in _walk(owner, "") if option.name != "given"}


@functools.cache
def list_sections() -> Mapping[str, str]:
    """Return the sections with the first line of their description."""
    return {
        name: (kind.__doc__ or "").strip().split("\n")[0]
        for name, kind in get_fields(Config).items()
        if dataclasses.is_dataclass(kind)
    }


def list_fields(option: Option) -> list[Option]:
    """Return the fields of the items of a list or a mapping; none for plain items."""
    item = strip(option.kind)
    item = get_args(item)[-1] if get_origin(item) in (list, dict) else item
    return list(_walk(item, f"{option.name}.")) if dataclasses.is_dataclass(item) else []


def _walk(owner: Any, prefix: str) -> Iterator[Option]:
    kinds, texts = get_fields(owner), read_descriptions(owner)
    for field in dataclasses.fields(owner):
        kind, name = kinds[field.name], f"{prefix}{field.name}"
        if dataclasses.is_dataclass(kind):
            yield from _walk(kind, f"{name}.")
        else:
            make = field.default_factory
            default = field.default if make is dataclasses.MISSING else make()
            yield Option(name, kind, default, texts.get(field.name, ""))


def read_descriptions(owner: type) -> dict[str, str]:
    """Return the docstring below each field of a class, inherited fields included.

    pydantic's `use_attribute_docstrings` would read the source on every import, not only for help.
    """
    texts: dict[str, str] = {}
    for base in filter(dataclasses.is_dataclass, reversed(owner.__mro__)):
        [tree] = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        for field, below in itertools.pairwise(getattr(tree, "body", ())):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(str(s))):
                    texts[name] = " ".join(s.split())
    return texts


def print_requested_help(
    arguments: Sequence[str], usage: str, *, prog: str, options: Mapping[str, Option]
) -> bool:
    """Print the help that the arguments ask for; return whether they ask for any.

    `--help` prints the usage, `--help SECTION` and `--help OPTION` some options, `--help-all` all.

    Raises:
        ConfigurationError: there is no such section or option.
    """
    shown = sorted(options.values(), key=lambda option: bool(option.section))
    if "--help-all" in arguments:
        print(usage.strip(), *_describe(shown), sep="\n")
        return True
    asked = next((place for place, argument in enumerate(arguments) if argument in _FLAGS), None)
    if asked is None:
        return False
    topic = next(iter(arguments[asked + 1 :]), "").removeprefix("--")
    if topic:
        print(*_describe_topic(topic, shown, prog), sep="\n")
    else:
        print(usage.strip())
        if sections := dict.fromkeys(option.section for option in shown if option.section):
            text = f"More options: {prog} --help SECTION, one of {', '.join(sections)}; or "
            more = textwrap.fill(f"{text}--help-all.", _WIDTH, break_on_hyphens=False)
            print(f"\n{more}")
    return True


def _describe_topic(topic: str, shown: Collection[Option], prog: str) -> Iterator[str]:
    chosen = [option for option in shown if topic in (option.name, option.section)]
    if not chosen:
        hint = did_you_mean(topic, [*list_sections(), *list_options()]) or f" See {prog} --help."
        raise ConfigurationError(f"Unknown help topic '{topic}'.{hint}")
    yield from _describe(chosen)
    if len(chosen) == 1:
        yield from _describe(list_fields(chosen[0]), dashes="")


def _describe(options: Sequence[Option], dashes: str = "--") -> Iterator[str]:
    section = None
    for option in options:
        if option.section != section and option.section in list_sections():
            yield f"\n{option.section}: {list_sections()[option.section]}"
        section = option.section
        yield ""
        yield textwrap.fill(
            f"{dashes}{option.name}  {describe(option.kind)}; {_describe_default(option)}",
            _WIDTH,
            initial_indent="  ",
            subsequent_indent="      ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        yield textwrap.fill(
            option.text, _WIDTH, initial_indent="      ", subsequent_indent="      "
        )


def _describe_default(option: Option) -> str:
    """Return the default, and what recipes set."""
    if option.default is dataclasses.MISSING:
        return "required"
    text = (
        "default unset" if option.default in (None, "") else f"default {show_value(option.default)}"
    )
    recipes = [f"{name} {values}" for name, values in list_recipe_values(option.name).items()]
    return f"{text}; with recipe {', '.join(recipes)}" if recipes else text


def list_recipe_values(option: str) -> dict[str, str]:
    """Return recipe → the value that it gives to an option, which may depend on the images."""
    shown_values: dict[str, str] = {}
    for name, recipe in RECIPES.items():
        values = [recipe(images)[option] for images in (_MANY, 1) if option in recipe(images)]
        shown = dict.fromkeys(map(show_value, sorted(values)))
        if values:
            shown_values[name] = " to ".join(shown)
    return shown_values


def show_value(value: Any) -> str:
    """Return a value as a configuration file would have it."""
    text = write_yaml(value, default_flow_style=True, width=1000).strip()
    return text.removesuffix("...").strip()


def describe_chosen(given: Collection[str], recipe: Recipe) -> str:
    """Return the options that the recipe has set, with their values.

    `given` are the options, as `section.field`, that the user has set.
    """
    chosen = {name: value for name, value in recipe.values.items() if name not in given}
    return ", ".join(f"{name} {show_value(value)}" for name, value in chosen.items())


def find_ineffective(given: Collection[str], config: Config, recipe: Recipe) -> Iterator[str]:
    """Yield a sentence about each option of the user that changes nothing.

    `config` is the complete configuration.
    """
    for name in given:
        value = operator.attrgetter(name)(config)
        sentence = f"--{name} {show_value(value)} changes nothing"
        if reason := _find_missing(name, config):
            yield f"{sentence} {reason}"
        elif name in recipe.values and recipe.values[name] == value:
            yield f"{sentence}: recipe {recipe.name} sets it already"


def _find_missing(name: str, config: Config) -> str:
    """Return what an option needs to have an effect; "" if nothing is missing."""
    if name.startswith("transfer.") and not config.model.pretrained:
        return "without pretrained weights"
    tuning = name.startswith("augmentation.") or name in (
        "training.epochs",
        "training.learning_rate",
    )
    if tuning and config.model.pretrained and config.transfer.unfreeze == "none":
        return "with transfer.unfreeze none"
    searched = name == "training.metric" and config.training.minutes
    names = ("training.patience", "training.metric")
    if name in names and config.training.keep == "last" and not searched:
        return "with training.keep last"
    if name == "model.width" and config.model.title not in OWN_NETWORKS:
        return f"with {config.model.title}"
    return ""

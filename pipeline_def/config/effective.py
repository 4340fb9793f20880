"""What options amount to for given images: those that the recipe sets, and those without effect."""

import operator
from collections.abc import Collection, Iterator

from components.contract.rules_of_thumb import OWN_NETWORKS
from pipeline_def.config.config import Config
from pipeline_def.config.options import list_options, show_value
from pipeline_def.config.recipes import Recipe

# A file that names every option would cause more notes than anyone reads.
_MOST_DEFAULTS = 5


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
    defaults = []
    for name in given:
        value = operator.attrgetter(name)(config)
        sentence = f"--{name} {show_value(value)} changes nothing"
        if reason := _find_missing(name, config):
            yield f"{sentence} {reason}"
        elif name in recipe.values and recipe.values[name] == value:
            yield f"{sentence}: recipe {recipe.name} sets it already"
        elif name not in recipe.values and list_options()[name].default == value:
            defaults.append(f"{sentence}: it is the default")
    yield from defaults if len(defaults) <= _MOST_DEFAULTS else ()


def _find_missing(name: str, config: Config) -> str:
    """Return what an option needs to have an effect; "" if nothing is missing."""
    if name.startswith("transfer.") and not config.model.pretrained:
        return "without pretrained weights"
    if name == "training.momentum" and config.training.optimizer != "sgd":
        return f"with training.optimizer {config.training.optimizer}"
    if name == "training.patience" and config.training.keep == "last":
        return "with training.keep last"
    if name == "model.width" and config.model.title not in OWN_NETWORKS:
        return f"with {config.model.title}"
    return ""

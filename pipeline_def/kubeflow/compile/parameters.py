"""What may differ from run to run of one compiled pipeline, and where each value goes."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import docstring_parser

from pipeline_def.config.config import Config
from pipeline_def.kubeflow.compile.spec_document import SpecDocument, lookup_of
from pipeline_def.kubeflow.step_interface import RECIPE_PARAMETER, STORAGE, STORAGE_PARAMETER
from pipeline_def.steps import EVALUATOR, EXAMPLE_GEN, TRAINER

_TYPES = {str: "STRING", int: "NUMBER_INTEGER", float: "NUMBER_DOUBLE"}

NEWEST_SPAN = -1
"""Value of the parameter `span` that stands for the newest one."""

_TRAINING = ("epochs", "patience", "batch_size", "learning_rate", "seed")
_EVALUATION = ("min_accuracy", "max_accuracy_drop")


@dataclass(frozen=True)
class RunParameter:
    """A parameter of the run."""

    name: str
    default: str | int | float
    description: str
    step: str = ""
    """The step that takes it, with its lookup. "" for `storage`: it goes wherever it is named."""
    place: tuple[str, ...] = ()
    """The execution property that the value goes into and, where this is JSON, the keys in it."""
    unset: int | None = None
    """Value that stands for null; None: there is none."""

    @property
    def type(self) -> str:
        """As KFP's specification names it."""
        return _TYPES[type(self.default)]


def run_parameters(config: Config) -> list[RunParameter]:
    """Return the parameters of the pipeline, their defaults taken from `config`."""
    return [
        RunParameter(
            "data",
            str(config.data),
            "Folder of images, a URL; label/image or split/label/image.",
            EXAMPLE_GEN.id,
            ("input_base",),
        ),
        RunParameter(
            STORAGE_PARAMETER,
            config.kubeflow.storage or "",
            "Where pushed models, checkpoints and statistics go; empty: below the pipeline root.",
        ),
        _span(config),
        *_choices(config.ingest, EXAMPLE_GEN.id, ("config",), ("max_reject_fraction",)),
        RunParameter(
            RECIPE_PARAMETER,
            config.training.recipe,
            "Recipe of the training: small, photos, transfer or cifar. Values that the pipeline or "
            "the run sets by itself stay.",
            TRAINER.id,
        ),
        *_choices(config.training, TRAINER.id, ("custom_config", "training"), _TRAINING),
        *_choices(config.evaluation, EVALUATOR.id, ("config",), _EVALUATION),
    ]


def _span(config: Config) -> RunParameter:
    given = config.ingest.span
    return RunParameter(
        "span",
        NEWEST_SPAN if given is None else given,
        "Span to take where data is a pattern with {SPAN} or a date; -1: the newest.",
        EXAMPLE_GEN.id,
        ("config", "span"),
        unset=NEWEST_SPAN,
    )


def _choices(
    section: Any, step: str, place: tuple[str, ...], fields: tuple[str, ...]
) -> Iterator[RunParameter]:
    """Yield parameters for fields of a configuration, described as in its --help."""
    described = docstring_parser.parse_from_object(type(section)).params
    help_texts = {field.arg_name: field.description or "" for field in described}
    for field in fields:
        name = "_".join((*place[1:], field))
        text = " ".join(help_texts[field].split())
        yield RunParameter(name, getattr(section, field), text, step, (*place, field))


def takes(document: SpecDocument, task: str, parameter: RunParameter) -> bool:
    """Say whether a task takes `parameter`."""
    if not parameter.step:
        return any(STORAGE in str(value) for value in document.constants(task).values())
    return task in (parameter.step, lookup_of(parameter.step))


def add_parameter(document: SpecDocument, parameter: RunParameter) -> None:
    """Make `parameter` one of the run, with its default, and give it to the steps that take it."""
    root = document.spec["root"].setdefault("inputDefinitions", {}).setdefault("parameters", {})
    root[parameter.name] = {
        "parameterType": parameter.type,
        "defaultValue": parameter.default,
        "description": parameter.description,
    }
    for task in [task for task in document.tasks if takes(document, task, parameter)]:
        if parameter.place:
            check_place(parameter, document.constants(task))
        if len(parameter.place) == 1:
            document.unbind(task, parameter.place[0])
        source = {"componentInputParameter": parameter.name}
        document.bind(task, parameter.name, parameter.type, source)


def check_place(parameter: RunParameter, properties: Mapping[str, Any]) -> None:
    """Make sure that the default of a parameter is found where its values will go.

    Raises:
        AssertionError: a change of the pipeline moved the place.
    """
    name, *keys = parameter.place
    value = properties[name]
    if keys:
        value = functools.reduce(lambda part, key: part[key], keys, json.loads(value))
    if value is None and parameter.unset is not None:
        value = parameter.unset
    if value != parameter.default:
        place = ":".join(parameter.place)
        raise AssertionError(f"{place} holds {value!r}, not {parameter.default!r}")

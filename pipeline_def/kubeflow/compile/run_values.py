"""Makes what may differ from run to run of one compiled pipeline parameters of the run."""

from typing import Any

from pipeline_def.config.config import Config
from pipeline_def.config.options import list_options
from pipeline_def.kubeflow.specification import Specification, step_of
from pipeline_def.kubeflow.step_interface import (
    RECIPE_PARAMETER,
    RUN_PARAMETERS,
    STORAGE,
    STORAGE_PARAMETER,
    Recipes,
    RunParameter,
)
from pipeline_def.steps import EVALUATOR, EXAMPLE_GEN, TRAINER

_TYPES = {str: "STRING", int: "NUMBER_INTEGER", float: "NUMBER_DOUBLE"}

_TEXTS = {
    "data": "Folder of images, a URL; label/image or split/label/image.",
    "span": "Span to take where data is a pattern with {SPAN} or a date; -1: the newest.",
    STORAGE_PARAMETER: "Where pushed models, checkpoints and statistics go; empty: below the "
    "pipeline root.",
    RECIPE_PARAMETER: "Recipe of the training: small, photos, transfer or cifar. Values that the "
    "pipeline or the run sets by itself stay.",
}
# Section of the options that a step's parameters replace.
_SECTIONS = {EXAMPLE_GEN.id: "ingest", TRAINER.id: "training", EVALUATOR.id: "evaluation"}


def add_run_parameters(document: Specification, config: Config, recipes: Recipes | None) -> None:
    """Add all parameters of the run, with their defaults, and give them to their tasks."""
    for parameter in RUN_PARAMETERS:
        tasks = [task for task in document.tasks if step_of(task) == parameter.step]
        properties = document.constants(parameter.step)
        default = parameter.read(properties[parameter.place[0]])
        _add(document, parameter.name, default, tasks, _describe(parameter))
        if len(parameter.place) == 1:
            for task in tasks:
                document.unbind(task, parameter.place[0])
    storing = [
        task
        for task in document.tasks
        if any(STORAGE in str(value) for value in document.constants(task).values())
    ]
    _add(document, STORAGE_PARAMETER, config.kubeflow.storage or "", storing)
    if recipes:
        _add(document, RECIPE_PARAMETER, config.training.recipe, [TRAINER.id])


def _describe(parameter: RunParameter) -> str:
    option = f"{_SECTIONS[parameter.step]}.{parameter.place[-1]}"
    return _TEXTS.get(parameter.name) or list_options()[option].text


def _add(
    document: Specification, name: str, default: Any, tasks: list[str], text: str | None = None
) -> None:
    kind = _TYPES[type(default)]
    root = document.spec["root"].setdefault("inputDefinitions", {}).setdefault("parameters", {})
    root[name] = {
        "parameterType": kind,
        "defaultValue": default,
        "description": text or _TEXTS[name],
    }
    for task in tasks:
        document.bind(task, name, kind, {"componentInputParameter": name})

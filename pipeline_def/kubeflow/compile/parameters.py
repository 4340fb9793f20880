"""What may differ from run to run of one compiled pipeline, and where each value goes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline_def.config.config import Config
from pipeline_def.kubeflow.compile.spec_document import SpecDocument, lookup_of
from pipeline_def.kubeflow.step.executor_io import STORAGE, STORAGE_PARAMETER, Setting

_TYPES = {str: "STRING", int: "NUMBER_INTEGER", float: "NUMBER_DOUBLE"}

_TRAINING = ("epochs", "patience", "batch_size", "learning_rate", "seed")


@dataclass(frozen=True)
class RunParameter:
    """A parameter of the run."""

    name: str
    default: str | int | float
    description: str
    setting: Setting | None = None
    """Where the value goes; none for `storage`, which goes wherever it is named."""
    step: str = ""
    """The one that takes it, and its lookup; none for `storage`."""

    @property
    def type(self) -> str:
        """As KFP's specification names it."""
        return _TYPES[type(self.default)]

    def definition(self) -> dict[str, Any]:
        """Return what the specification says of it."""
        return {
            "parameterType": self.type,
            "defaultValue": self.default,
            "description": self.description,
        }


def run_parameters(config: Config) -> list[RunParameter]:
    """Return the parameters of the pipeline, their defaults taken from `config`."""
    training = [
        RunParameter(
            f"training_{name}",
            getattr(config.training, name),
            f"training.{name} of the configuration.",
            Setting(f"training_{name}", "custom_config", ("training", name)),
            "Trainer",
        )
        for name in _TRAINING
    ]
    return [
        RunParameter(
            "data",
            str(config.data),
            "Folder of images, a URL; label/image or split/label/image.",
            Setting("data", "input_base"),
            "ImageExampleGen",
        ),
        RunParameter(
            STORAGE_PARAMETER,
            config.kubeflow.storage or "",
            "Where pushed models, checkpoints and statistics go; empty: below the pipeline root.",
        ),
        RunParameter(
            "max_reject_fraction",
            config.ingest.max_reject_fraction,
            "Share of the files that may be unusable, 0 to 1.",
            Setting("max_reject_fraction", "config", ("max_reject_fraction",)),
            "ImageExampleGen",
        ),
        *training,
        RunParameter(
            "min_accuracy",
            config.evaluation.min_accuracy,
            "Lowest accuracy of a model that is blessed, 0 to 1.",
            Setting("min_accuracy", "config", ("min_accuracy",)),
            "Evaluator",
        ),
    ]


def takes(document: SpecDocument, task: str, parameter: RunParameter) -> bool:
    """Say whether a task takes `parameter`."""
    if parameter.setting is None:
        return any(STORAGE in str(value) for value in document.constants(task).values())
    return task in (parameter.step, lookup_of(parameter.step))


def add_parameter(document: SpecDocument, parameter: RunParameter) -> None:
    """Make `parameter` one of the run, with its default, and give it to the steps that take it."""
    root = document.spec["root"].setdefault("inputDefinitions", {}).setdefault("parameters", {})
    root[parameter.name] = parameter.definition()
    for task in document.tasks:
        if not takes(document, task, parameter):
            continue
        setting = parameter.setting
        if setting:
            check_place(setting, parameter.default, document.constants(task))
        if setting and not setting.path:
            document.unbind(task, setting.property)
        source = {"componentInputParameter": parameter.name}
        document.bind(task, parameter.name, parameter.type, source)


def check_place(setting: Setting, default: Any, properties: Mapping[str, Any]) -> None:
    """Make sure that the default of a parameter is found where its values will go.

    Raises:
        AssertionError: a change of the pipeline moved the place.
    """
    value = properties[setting.property]
    if setting.path:
        value = json.loads(value)
    for key in setting.path:
        value = value[int(key) if isinstance(value, list) else key]
    if value != default:
        raise AssertionError(f"{setting} holds {value!r}, not {default!r}")

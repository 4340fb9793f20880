"""Finds what a target would refuse in a specification, when it is compiled and not when it runs.

The rules are in the files beside this one, the sentences in `constructs`. Their sources are KFP's
backend/src/apiserver/template, v2/compiler/argocompiler, v2/driver and v2/component.
"""

from __future__ import annotations

from typing import Any

import yaml

from components.contract.errors import ConfigurationError, StorageError
from pipeline_def.kubeflow.check import (
    container_rules,
    data_rules,
    structure_rules,
    target_rules,
)
from pipeline_def.kubeflow.check.constructs import Problem, Rule
from pipeline_def.kubeflow.specification import Specification, Target

_RULES: tuple[Rule, ...] = (
    *structure_rules.RULES,
    *data_rules.RULES,
    *container_rules.RULES,
)
_RULES_OF: dict[Target, tuple[Rule, ...]] = {
    "oss": (*_RULES, *target_rules.OPEN_SOURCE),
    "vertex": (*_RULES, *target_rules.VERTEX),
}


def read_documents(path: str) -> list[Any]:
    """Read a specification from a file of YAML or JSON.

    Raises:
        StorageError: it cannot be read.
        ConfigurationError: it is neither.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return [document for document in yaml.safe_load_all(file) if document is not None]
    except OSError as error:
        raise StorageError(f"Cannot read {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"Cannot read {path}: it is not text.") from error
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0]
        raise ConfigurationError(f"{path} is neither YAML nor JSON: {reason}.") from error


def find_problems(documents: list[Any], target: Target) -> list[Problem]:
    """Return everything that `target` would refuse in the documents of a file."""
    problems = list(structure_rules.check_documents(documents, target))
    if problems:
        return problems
    found = (
        problem
        for layer in Specification(*documents).layers()
        for rule in _RULES_OF[target]
        for problem in rule(layer)
    )
    # What is wrong with the file as a whole is found once for every layer.
    return list(dict.fromkeys(found))


def check_documents(documents: list[Any], target: Target) -> None:
    """Make sure that `target` takes the specification.

    Raises:
        ConfigurationError: names everything that it would refuse.
    """
    _refuse(find_problems(documents, target), target)


def check_name(name: str) -> None:
    """Make sure that `name` may be that of a pipeline, before TFX's compiler stumbles over it.

    Raises:
        ConfigurationError: says what a name is made of.
    """
    named = Specification({"pipelineInfo": {"name": name}})
    _refuse(list(structure_rules.pipeline_name(named)), "oss")


def _refuse(problems: list[Problem], target: Target) -> None:
    if problems:
        found = " ".join(f"[{problem.code}] {problem.text}" for problem in problems)
        where = "Vertex AI" if target == "vertex" else "Kubeflow Pipelines"
        raise ConfigurationError(f"{where} would not run this pipeline as it is meant. {found}")

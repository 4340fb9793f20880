"""Finds what a target would refuse in a specification, when it is compiled and not when it runs.

Each rule names the construct, where it is and what to do. The sources are KFP's
backend/src/apiserver/template, v2/compiler/argocompiler, v2/driver and v2/component.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import yaml

from components.contract.errors import UserError
from pipeline_def.kubeflow.check import spec_containers, spec_data, spec_structure
from pipeline_def.kubeflow.check.spec_view import Problem, SpecView

Rule = Callable[[SpecView], Iterator[Problem]]

RULES: tuple[Rule, ...] = (
    *spec_structure.RULES,
    *spec_data.RULES,
    *spec_containers.RULES,
)


def read_documents(path: str) -> list[Any]:
    """Read a specification from a file of YAML or JSON.

    Raises:
        UserError: it cannot be read, or is neither.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return [document for document in yaml.safe_load_all(file) if document is not None]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UserError(f"Cannot read {path}: {reason}.") from error
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path} is neither YAML nor JSON: {reason}.") from error


def find_problems(documents: list[Any], target: str) -> list[Problem]:
    """Return everything that `target`, oss or vertex, would refuse in the documents of a file."""
    problems = list(spec_structure.check_documents(documents, target))
    if problems:
        return problems
    view = SpecView(documents[0], documents[1] if len(documents) > 1 else {}, target)
    return [problem for rule in RULES for problem in rule(view)]


def check_documents(documents: list[Any], target: str) -> None:
    """Make sure that `target` takes the specification.

    Raises:
        UserError: names everything that it would refuse.
    """
    _refuse(find_problems(documents, target), target)


def check_name(name: str) -> None:
    """Make sure that `name` may be that of a pipeline, before TFX's compiler stumbles over it.

    Raises:
        UserError: says what a name is made of.
    """
    view = SpecView({"pipelineInfo": {"name": name}}, {}, "oss")
    _refuse(list(spec_structure.pipeline_name(view)), "oss")


def _refuse(problems: list[Problem], target: str) -> None:
    if problems:
        found = " ".join(f"[{problem.code}] {problem.text}" for problem in problems)
        where = "Vertex AI" if target == "vertex" else "Kubeflow Pipelines"
        raise UserError(f"{where} would not run this pipeline as it is meant. {found}")

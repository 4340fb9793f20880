"""What KFP's launcher gives a step: its command, with a message in JSON."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.contract.configuration import to_json
from pipeline_def.kubeflow.step_interface import StepInterface

Artifacts = Mapping[str, Mapping[str, Any]]


def executor_input(
    output_file: Path | str, inputs: Artifacts, outputs: Artifacts, **parameters: Any
) -> dict[str, Any]:
    """Return the message with one artifact for each name."""
    return {
        "inputs": {"parameterValues": parameters, "artifacts": _listed(inputs)},
        "outputs": {"artifacts": _listed(outputs), "outputFile": str(output_file)},
    }


def _listed(artifacts: Artifacts) -> dict[str, Any]:
    return {name: {"artifacts": [dict(artifact)]} for name, artifact in artifacts.items()}


def command(step: str, interface: StepInterface, given: Mapping[str, Any]) -> list[str]:
    """Return the arguments of the step's command."""
    own = ("--step", step, "--interface", to_json(interface))
    return [*own, "--executor_input", json.dumps(given)]

"""The command of the Trainer step with two workers, as KFP's launcher gives it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from components.contract.configuration import to_json
from pipeline_def.config.kubeflow import StepConfig
from pipeline_def.kubeflow.step_interface import StepInterface, WorkerGroup

_STANDARD = "tfx.types.standard_artifacts"


def step_arguments(
    folder: Path, parameters: dict[str, Any], *, examples: str, graph: str, splits: list[str]
) -> list[str]:
    """The step's outputs and the volume of its workers are below `folder`, on disk."""
    interface = StepInterface(
        executor="tfx.components.trainer.executor.GenericExecutor",
        pipeline="images",
        inputs={
            "examples": f"{_STANDARD}.Examples",
            "transform_graph": f"{_STANDARD}.TransformGraph",
        },
        outputs={"model": f"{_STANDARD}.Model", "model_run": f"{_STANDARD}.ModelRun"},
        workers=WorkerGroup(2, "i", StepConfig(volumes={"claim": str(folder / "volume")})),
    )
    found = {
        "examples": {"uri": examples, "metadata": {"split_names": json.dumps(splits)}},
        "transform_graph": {"uri": graph},
    }
    made = {name: {"uri": str(folder / name), "type": {}} for name in interface.outputs}
    given = {
        "inputs": {
            "parameterValues": {**parameters, "storage": f"{folder}/volume/models"},
            "artifacts": {name: {"artifacts": [one]} for name, one in found.items()},
        },
        "outputs": {
            "artifacts": {name: {"artifacts": [one]} for name, one in made.items()},
            "outputFile": str(folder / "output.json"),
        },
    }
    own = ("--step", "Trainer", "--interface", to_json(interface))
    return [*own, "--executor_input", json.dumps(given)]

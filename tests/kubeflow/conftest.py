"""The compiled pipeline, once a session, its parts, and what KFP's launcher gives a step."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import kfp_runner
from components.contract.configuration import from_json, to_json
from components.images.options import TransformConfig
from components.trainer.config.model import ModelConfig
from pipeline_def.config.config import Config
from pipeline_def.config.kubeflow import KubeflowConfig, StepConfig, Toleration
from pipeline_def.kubeflow.specification import Spec
from pipeline_def.kubeflow.step_interface import PodSettings, StepInterface

Artifacts = Mapping[str, Mapping[str, Any]]
GPU_STEP = StepConfig(
    cpu=8,
    gpus=2,
    image="i:gpu",
    retries=3,
    node_selector={"pool": "gpu"},
    tolerations=[Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")],
    volumes={"claim": "/mnt/data"},
    shared_memory="4Gi",
    labels={"kueue.x-k8s.io/queue-name": "team", "cost": "vision"},
    annotations={"note": "a"},
)
MINIMAL = ("compile", "--image", "registry/image:1", "--data", "gs://bucket/images")


def compile_file(file: Path, *argv: str) -> list[Spec]:
    """Compile as the command line says; return the documents."""
    assert kfp_runner.main([*MINIMAL, "--output", str(file), *argv]) == 0
    return list(yaml.safe_load_all(file.read_text()))


@pytest.fixture(scope="session")
def compiled_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the shortest command writes for open-source Kubeflow."""
    file = tmp_path_factory.mktemp("compiled") / "pipeline.yaml"
    compile_file(file)
    return file


@pytest.fixture(scope="session")
def compiled(compiled_file: Path) -> list[Spec]:
    """The documents of `compiled_file`."""
    return list(yaml.safe_load_all(compiled_file.read_text()))


def config(**kubeflow: Any) -> Config:
    """A resolved configuration, of a small network."""
    return Config(
        data="gs://bucket/images",
        transform=TransformConfig(size=32),
        model=ModelConfig(name="cnn"),
        kubeflow=KubeflowConfig(**kubeflow),
    )


def container(spec: Spec, name: str) -> Spec:
    """The container of a step."""
    definition: Spec = spec["deploymentSpec"]["executors"][f"{name}_executor"]["container"]
    return definition


def interface(spec: Spec, name: str) -> StepInterface:
    """The interface in the command of a step."""
    arguments = container(spec, name)["args"]
    return from_json(StepInterface, arguments[arguments.index("--interface") + 1])


def settings_of(spec: Spec, name: str) -> PodSettings:
    """What a pod is told in its environment."""
    variables = {var["name"]: var["value"] for var in container(spec, name).get("env", [])}
    return from_json(PodSettings, variables.get("STEP_SETTINGS", "{}"))


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
    known = ("--step", step, "--interface", to_json(interface))
    return [*known, "--executor_input", json.dumps(given)]

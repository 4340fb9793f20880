"""Kubeflow Pipelines' own API server takes our pipeline file, with all that can be configured."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import kfp_runner
from tests.kubeflow.kfp_backend import Unavailable, argo_workflow
from tests.missing import lack

# One process, which builds KFP's packages once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kfp")]

Spec = dict[str, Any]

STEPS = """{all: {cpu: 2, memory: 4, secrets: {s: {key: VARIABLE}}, image_pull_secrets: [login]},
Trainer: {gpus: 1, image: "i:gpu", retries: 3,
node_selector: {pool: gpu}, tolerations: [{key: nvidia.com/gpu, operator: Exists}],
volumes: {claim: /mnt/data}, shared_memory: 4Gi, env: {A: b},
labels: {kueue.x-k8s.io/queue-name: team}, annotations: {note: a}}}"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pipeline with every kind of setting and every step."""
    path = tmp_path_factory.mktemp("compiled") / "pipeline.yaml"
    images = ("--image", "i:1", "--data", "gs://bucket/images", "--predict.folder", "gs://b/new")
    options = ("--kubeflow.steps", STEPS, "--kubeflow.pipeline_root", "minio://mlpipeline/root")
    assert kfp_runner.main(["compile", *images, *options, "--output", str(path)]) == 0
    return path


def workflow_of(file: Path, **parameters: Any) -> Spec:
    try:
        return argo_workflow(file, parameters)
    except Unavailable as reason:
        lack("kfp", f"Kubeflow Pipelines: {reason}")


def test_a_run_has_the_containers_settings_and_parameters_of_our_file(file: Path) -> None:
    spec, platform = yaml.safe_load_all(file.read_text())
    workflow = workflow_of(file, training_epochs=3, data="gs://other")
    given = workflow["spec"]["arguments"]["parameters"]
    arguments = {parameter["name"]: json.loads(parameter["value"]) for parameter in given}
    containers = [value for name, value in arguments.items() if "implementations" in name]
    wanted = [executor["container"] for executor in spec["deploymentSpec"]["executors"].values()]
    assert sorted(containers, key=str) == sorted(wanted, key=str)
    settings = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert arguments["kubernetes-Trainer"] == settings["Trainer_executor"]
    templates = {template["name"]: template for template in workflow["spec"]["templates"]}
    tasks = {task["name"] for task in templates["root"]["dag"]["tasks"]}
    assert tasks >= {f"{name}-driver" for name in spec["root"]["dag"]["tasks"]}
    driver = templates["entrypoint"]["dag"]["tasks"][0]["arguments"]["parameters"]
    config = next(value["value"] for value in driver if value["name"] == "runtime-config")
    values = json.loads(config)["parameterValues"]
    assert (values["training_epochs"], values["data"]) == (3, "gs://other")

"""The specification that kfp_runner.py compiles, for both targets."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import json_format
from kfp import components as kfp_components
from kfp.kubernetes import kubernetes_executor_config_pb2
from kfp.pipeline_spec import pipeline_spec_pb2

import kfp_runner
from components.contract.errors import UserError
from components.transform.config import TransformConfig
from pipeline_def.config.config import Config
from pipeline_def.config.kubeflow import KubeflowConfig, StepConfig, Toleration
from pipeline_def.config.model import ModelConfig
from pipeline_def.kubeflow.check.spec_check import find_problems
from pipeline_def.kubeflow.compile import compiler, parameters
from pipeline_def.kubeflow.step.executor_io import Setting
from tests.nodes import NODES

ROOT = Path(__file__).parents[2]
MINIMAL = ("compile", "--image", "registry/image:1", "--data", "gs://bucket/images")
LOOKUPS = ["BaselineFinder-lookup", "ExampleValidator-lookup", "ImageExampleGen-lookup"]

Spec = dict[str, Any]


def config(**kubeflow: Any) -> Config:
    return Config(
        data="gs://bucket/images",
        transform=TransformConfig(size=32),
        model=ModelConfig(name="cnn"),
        kubeflow=KubeflowConfig(**kubeflow),
    )


def compile_file(folder: Path, *argv: str) -> list[Spec]:
    file = folder / "pipeline.yaml"
    assert kfp_runner.main([*MINIMAL, "--output", str(file), *argv]) == 0
    return list(yaml.safe_load_all(file.read_text()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module")
def compiled(folder: Path) -> list[Spec]:
    """What the shortest command writes for open-source Kubeflow."""
    return compile_file(folder, "--target", "oss")


@pytest.fixture(scope="module")
def spec(compiled: list[Spec]) -> Spec:
    return compiled[0]


def task(spec: Spec, name: str) -> Spec:
    found: Spec = spec["root"]["dag"]["tasks"][name]
    return found


def container(spec: Spec, name: str) -> Spec:
    found: Spec = spec["deploymentSpec"]["executors"][f"{name}_executor"]["container"]
    return found


def test_kfp_itself_reads_both_documents(folder: Path, compiled: list[Spec]) -> None:
    json_format.ParseDict(compiled[0], pipeline_spec_pb2.PipelineSpec())
    kubernetes = compiled[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    for settings in kubernetes.values():
        json_format.ParseDict(settings, kubernetes_executor_config_pb2.KubernetesExecutorConfig())
    loaded = kfp_components.load_component_from_file(str(folder / "pipeline.yaml"))
    assert loaded.name == "images"
    assert set(loaded.component_spec.inputs) >= {"data", "storage", "training_epochs"}


def test_the_dag_is_the_local_one_and_its_lookups(spec: Spec) -> None:
    assert spec["schemaVersion"] == "2.1.0"
    assert set(spec["root"]["dag"]["tasks"]) == {*NODES, *LOOKUPS}
    assert "AnomalyGate" in task(spec, "Transform")["dependentTasks"]
    for name in spec["root"]["dag"]["tasks"]:
        assert container(spec, name)["image"] == "registry/image:1"
        assert container(spec, name)["command"][-1] == "pipeline_def.kubeflow.step.entrypoint"


def test_the_same_choices_give_the_same_bytes(tmp_path: Path, folder: Path, spec: Spec) -> None:
    again = tmp_path / "pipeline.yaml"
    command = [sys.executable, str(ROOT / "kfp_runner.py"), *MINIMAL, "--output", str(again)]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    environment = {**plain, "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert again.read_bytes() == (folder / "pipeline.yaml").read_bytes()
    assert done.stderr == ""


def test_only_lookups_are_never_cached_and_their_result_is_part_of_the_key(spec: Spec) -> None:
    for name, definition in spec["root"]["dag"]["tasks"].items():
        enabled = definition.get("cachingOptions", {}).get("enableCache", False)
        assert enabled is (name not in LOOKUPS), name
    for name in LOOKUPS:
        consumer = task(spec, name.removesuffix("-lookup"))
        source = consumer["inputs"]["parameters"]["resolved"]["taskOutputParameter"]
        assert source == {"producerTask": name, "outputParameterKey": "resolved"}
        assert name in consumer["dependentTasks"]


def test_what_may_change_from_run_to_run_has_its_default(spec: Spec) -> None:
    found = spec["root"]["inputDefinitions"]["parameters"]
    assert found["data"]["defaultValue"] == "gs://bucket/images"
    assert found["training_epochs"]["defaultValue"] == Config().training.epochs
    assert all("defaultValue" in definition for definition in found.values())
    for name, step in (("data", "ImageExampleGen"), ("data", "ImageExampleGen-lookup")):
        source = task(spec, step)["inputs"]["parameters"][name]
        assert source == {"componentInputParameter": name}
    used = {
        source.get("componentInputParameter")
        for definition in spec["root"]["dag"]["tasks"].values()
        for source in definition["inputs"].get("parameters", {}).values()
    }
    assert used - {None} == set(found)


def test_a_parameter_whose_place_has_moved_is_noticed() -> None:
    epochs = Setting.parse("training_epochs=custom_config:training.epochs")
    parameters.check_place(epochs, 20, {"custom_config": '{"training": {"epochs": 20}}'})
    with pytest.raises(AssertionError, match="holds 21, not 20"):
        parameters.check_place(epochs, 20, {"custom_config": '{"training": {"epochs": 21}}'})


def test_kubeflows_own_artifact_types_are_named_as_its_sdk_does(spec: Spec) -> None:
    outputs = spec["components"]["ImageReport"]["outputDefinitions"]["artifacts"]
    titles = {name: output["artifactType"].get("schemaTitle") for name, output in outputs.items()}
    assert titles == {
        "html": "system.HTML",
        "metrics": "system.Metrics",
        "classification": "system.ClassificationMetrics",
        "card": "system.Markdown",
    }


STEPS = {
    "BaselineFinder": StepConfig(memory=64, gpus=1),
    "BaselineFinder-lookup": StepConfig(cpu=1),
    "all": StepConfig(
        image_pull_secrets=["login"],
        cpu=2,
        memory=4,
        env={"A": "1"},
        secrets={"s": {"key": "VARIABLE"}},
    ),
    "Trainer": StepConfig(
        cpu=8,
        gpus=2,
        image="i:gpu",
        retries=3,
        node_selector={"pool": "gpu"},
        tolerations=[Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")],
        volumes={"claim": "/mnt/data"},
        shared_memory="4Gi",
    ),
}


def test_resources_of_each_step() -> None:
    made, platform = compiler.compile_documents(config(steps=STEPS), target="oss", image="i")
    trainer = container(made, "Trainer")
    assert trainer["resources"] == {
        "cpuLimit": 8,
        "cpuRequest": 8,
        "memoryLimit": 4,
        "memoryRequest": 4,
        "accelerator": {"type": "nvidia.com/gpu", "count": "2"},
    }
    assert trainer["env"] == [{"name": "A", "value": "1"}]
    assert "accelerator" not in container(made, "Evaluator")["resources"]
    assert (trainer["image"], container(made, "Pusher")["image"]) == ("i:gpu", "i")
    assert task(made, "Trainer")["retryPolicy"]["maxRetryCount"] == 3
    assert "retryPolicy" not in task(made, "Pusher")
    # A lookup reaches what its step does, but needs no large machine for it.
    lookup = container(made, "BaselineFinder-lookup")
    assert lookup["resources"] == {
        "cpuLimit": 1,
        "cpuRequest": 1,
        "memoryLimit": 4,
        "memoryRequest": 4,
    }
    settings = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert settings["Trainer_executor"] == {
        "nodeSelector": {"labels": {"pool": "gpu"}},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "imagePullSecret": [{"secretName": "login"}],
        "secretAsEnv": [
            {"secretName": "s", "keyToEnv": [{"secretKey": "key", "envVar": "VARIABLE"}]}
        ],
        "pvcMount": [{"constant": "claim", "mountPath": "/mnt/data"}],
        "emptyDirMounts": [
            {"volumeName": "shm", "mountPath": "/dev/shm", "medium": "Memory", "sizeLimit": "4Gi"}
        ],
    }
    assert set(settings["Transform_executor"]) == {"imagePullSecret", "secretAsEnv"}


def test_resources_on_vertex() -> None:
    steps = {"Trainer": StepConfig(cpu=8, gpus=1)}
    [made] = compiler.compile_documents(
        config(steps=steps, pipeline_root="gs://bucket/root"), target="vertex", image="i"
    )
    accelerator = container(made, "Trainer")["resources"]["accelerator"]
    assert accelerator == {"type": "NVIDIA_TESLA_T4", "count": "1"}
    assert made["defaultPipelineRoot"] == "gs://bucket/root"
    assert "--direct" in container(made, "Trainer")["args"]
    with pytest.raises(UserError, match=r"\[platform\] Vertex AI reads no platform document"):
        compiler.compile_documents(config(steps=STEPS), target="vertex", image="i")


def secrets(documents: list[Spec]) -> set[str]:
    if len(documents) == 1:
        return set()
    executors = documents[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    return {label.removesuffix("_executor") for label in executors}


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        (
            {},
            {
                *("AnomalyGate", "BaselineFinder", "ExampleValidator", "ImageExampleGen"),
                *("Pusher", *LOOKUPS),
            },
        ),
        ({"storage": "gs://bucket/models"}, set()),
        ({"pipeline_root": "gs://bucket/root"}, set()),
        ({"store_secret": ""}, set()),
    ],
)
def test_the_object_stores_secret_is_asked_for_where_it_is_needed(
    options: dict[str, str], steps: set[str]
) -> None:
    made = compiler.compile_documents(config(**options), target="oss", image="i")
    assert secrets(made) == steps


def test_the_report_reads_rejected_images_where_ingest_does() -> None:
    choices = dataclasses.replace(config(storage="gs://b/models"), data="minio://bucket/images")
    made = compiler.compile_documents(choices, target="oss", image="i")
    assert secrets(made) == {"ImageExampleGen", "ImageExampleGen-lookup", "ImageReport"}


def test_beam_on_other_machines_uses_remote_uris() -> None:
    arguments = ["--runner=DataflowRunner", "--project=p"]
    remote = dataclasses.replace(config(pipeline_root="gs://b/r"), beam_pipeline_args=arguments)
    [made] = compiler.compile_documents(remote, target="oss", image="i")
    assert "--direct" in container(made, "Transform")["args"]
    assert container(made, "Transform")["args"][-3:] == ["--", *arguments]
    # The launcher has copied the shards for the Trainer, which runs no Beam.
    assert {"--direct", "--"}.isdisjoint(container(made, "Trainer")["args"])
    elsewhere = dataclasses.replace(config(), beam_pipeline_args=arguments)
    with pytest.raises(UserError, match=r"set kubeflow.pipeline_root to a folder on gs://"):
        compiler.compile_documents(elsewhere, target="oss", image="i")


def test_what_tfx_compiles_by_itself_would_be_refused() -> None:
    """The gaps are real: TFX's own result, before ours is made of it."""
    pipeline = compiler._create_pipeline(config())
    codes = {problem.code for problem in find_problems([compiler._compile(pipeline, "i")], "oss")}
    assert codes == {"pre-cache-check"}


def test_the_configurations_in_the_docs_compile(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "kubeflow.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        file = tmp_path / "cluster.yaml"
        file.write_text(block)
        assert compile_file(tmp_path, "--config", str(file))


MISTAKES = {
    ("--data", "/local"): "--data is /local: a cluster needs a URL",
    ("--kubeflow.storage", "models"): "--kubeflow.storage is models: a cluster needs a URL",
    ("--kubeflow.storage", "gs://bucket/images/models"): "lies in --data",
    ("--kubeflow.steps", "{Trainr: {cpu: 4}}"): "kubeflow.steps names Trainr: the steps are all, ",
    ("--kubeflow.steps", "{Trainer: {shared_memory: 4 GB}}"): "shared_memory of a step is '4 GB'",
    ("--kubeflow.steps", "{Trainer: {cpu: 0}}"): "cpu of a step is 0.0: it must be above 0",
    ("--name", "My images"): "The pipeline is named 'My images'",
    ("--kubeflow.pipeline_root", "/data"): "The pipeline root is /data: it must start with gs://",
    ("--output", "/no/such/folder/x.yaml"): "Cannot write /no/such/folder/x.yaml",
    ("--target", "eks"): "invalid choice: 'eks'",
}


@pytest.mark.parametrize(("argv", "message"), MISTAKES.items())
def test_a_mistake_is_one_sentence_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], message: str
) -> None:
    assert kfp_runner.main([*MINIMAL, "--output", str(tmp_path / "x.yaml"), *argv]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.parametrize("argv", [("compile",), ("run",), ("check",), ("deploy",), ()])
def test_missing_options(capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]) -> None:
    assert kfp_runner.main(argv) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("kfp_runner.py: error: ")


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (("--help",), "compile|run|check"),
        (("compile", "--help"), "--kubeflow.storage"),
        (("compile", "--kubeflow.steps.help"), "image_pull_secrets"),
        (("run", "--help"), "--token-file"),
        (("check", "--help"), "--target"),
    ],
)
def test_help(capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], text: str) -> None:
    # argparse ends the process itself, with status 0.
    with contextlib.suppress(SystemExit):
        assert kfp_runner.main(argv) == 0
    assert text in capsys.readouterr().out

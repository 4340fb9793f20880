"""Compiling for several workers, and the configurations that are rejected."""

import dataclasses
from typing import Any

import pytest

from components.contract.errors import ConfigurationError
from components.trainer.config.training import TrainingConfig
from pipeline_def.config.kubeflow import StepConfig
from pipeline_def.kubeflow.compile import compiler
from pipeline_def.kubeflow.compile.platform import check_workers
from pipeline_def.kubeflow.specification import Target
from pipeline_def.kubeflow.step_interface import WorkerGroup
from tests.kubeflow.conftest import config, container, interface, settings_of

ROOT = "gs://bucket/root"
STEPS = {
    "all": StepConfig(cpu=1, memory=4, node_selector={"pool": "cpu"}),
    "Trainer": StepConfig(
        cpu=8,
        gpus=2,
        image="i:gpu",
        retries=3,
        shared_memory="4Gi",
        node_selector={"pool": "gpu"},
        volumes={"claim": "/mnt/shared"},
        labels={"kueue.x-k8s.io/queue-name": "team"},
        priority_class="high",
    ),
}


@pytest.mark.slow
def test_the_step_starts_workers_from_a_small_machine() -> None:
    choices = config(workers=4, pipeline_root=ROOT, steps=STEPS)
    spec, kubernetes = compiler.compile_documents(choices, target="oss", image="i")
    settings = choices.kubeflow.step("Trainer")
    assert interface(spec, "Trainer").workers == 4
    assert settings_of(spec, "Trainer").workers == WorkerGroup("i:gpu", settings)
    resources = {"cpuLimit": 1, "cpuRequest": 1, "memoryLimit": 4, "memoryRequest": 4}
    assert container(spec, "Trainer")["resources"] == resources
    executors = kubernetes["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert executors["Trainer_executor"] == {
        "nodeSelector": {"labels": {"pool": "cpu"}},
        "pvcMount": [{"constant": "claim", "mountPath": "/mnt/shared"}],
    }
    assert interface(spec, "Transform").workers == 1
    [alone] = compiler.compile_documents(config(pipeline_root=ROOT), target="oss", image="i")
    assert settings_of(alone, "Trainer").workers is None


def test_labels_and_priorities() -> None:
    """A pod of KFP has labels and annotations, but no priority class."""
    trainer = StepConfig(labels={"queue": "team"}, annotations={"note": "a"})
    choices = config(steps={"Trainer": trainer}, store_secret="")
    [_, kubernetes] = compiler.compile_documents(choices, target="oss", image="i")
    executors = kubernetes["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    metadata = {"labels": {"queue": "team"}, "annotations": {"note": "a"}}
    assert executors["Trainer_executor"] == {"podMetadata": metadata}
    steps = {"Trainer": StepConfig(priority_class="high")}
    with pytest.raises(ConfigurationError, match="cannot set one for Trainer: only several"):
        compiler.compile_documents(config(steps=steps), target="oss", image="i")


SHARED = {"all": StepConfig(volumes={"claim": "/mnt/shared"})}


@pytest.mark.parametrize(
    "kubeflow",
    [
        {"pipeline_root": ROOT},
        {"pipeline_root": ROOT, "storage": "/mnt/shared", "steps": SHARED},
        # Artifacts of the cluster's own store travel over the volume.
        {"storage": "/mnt/shared/models", "steps": SHARED},
    ],
)
def test_where_workers_can_share(kubeflow: dict[str, Any]) -> None:
    check_workers(config(workers=4, **kubeflow), "oss")


@pytest.mark.parametrize(
    ("kubeflow", "message"),
    [
        ({}, "cannot share checkpoints in the cluster's own store: set kubeflow.storage"),
        ({"storage": "/mnt/sharedfolder", "steps": SHARED}, "checkpoints in /mnt/sharedfolder"),
        ({"storage": "gs://b/m"}, "artifacts are in the cluster's own store, which the workers"),
    ],
)
def test_where_workers_cannot_share(kubeflow: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        check_workers(config(workers=4, **kubeflow), "oss")
    check_workers(config(workers=1, **kubeflow), "oss")


@pytest.mark.parametrize(
    ("training", "target", "message"),
    [
        ({"accelerator": "mirrored"}, "oss", "training.accelerator is mirrored, for one machine"),
        ({"minutes": 60}, "oss", "training.minutes searches on one machine: remove one"),
        ({}, "vertex", "on Vertex AI use one machine with several GPUs"),
    ],
)
def test_requirements_of_workers(training: dict[str, Any], target: Target, message: str) -> None:
    choices = dataclasses.replace(
        config(workers=4, pipeline_root=ROOT), training=TrainingConfig(**training)
    )
    with pytest.raises(ConfigurationError, match=message):
        check_workers(choices, target)

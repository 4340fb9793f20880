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
from tests.kubeflow.conftest import config, container, interface, settings_of

ROOT = "gs://bucket/root"
STEPS = {
    "all": StepConfig(cpu=1, memory=4, node_selector={"pool": "cpu"}),
    "Trainer": StepConfig(
        cpu=8,
        gpus=2,
        image="i:gpu",
        shared_memory="4Gi",
        node_selector={"pool": "gpu"},
        volumes={"claim": "/mnt/shared"},
        labels={"kueue.x-k8s.io/queue-name": "team"},
    ),
}


@pytest.mark.slow
def test_the_step_starts_workers_from_a_small_machine() -> None:
    choices = config(workers=4, pipeline_root=ROOT, steps=STEPS)
    spec, kubernetes = compiler.compile_documents(choices, target="oss", image="i")
    settings = choices.kubeflow.step("Trainer")
    assert interface(spec, "Trainer").workers == 4
    assert settings_of(spec, "Trainer").workers == settings
    resources = {"cpuLimit": 1, "cpuRequest": 1, "memoryLimit": 4, "memoryRequest": 4}
    assert container(spec, "Trainer")["resources"] == resources
    executors = kubernetes["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert executors["Trainer_executor"] == {
        "nodeSelector": {"labels": {"pool": "cpu"}},
        "pvcMount": [{"constant": "claim", "mountPath": "/mnt/shared"}],
    }
    assert interface(spec, "Transform").workers == 1


SHARED = {"all": StepConfig(volumes={"claim": "/mnt/shared"})}
ON_GS = {"pipeline_root": ROOT}


@pytest.mark.parametrize(
    "kubeflow",
    [
        ON_GS,
        {**ON_GS, "storage": "/mnt/shared", "steps": SHARED},
        # Artifacts of the cluster's own store travel over the volume.
        {"storage": "/mnt/shared/models", "steps": SHARED},
    ],
)
def test_where_workers_can_share(kubeflow: dict[str, Any]) -> None:
    check_workers(config(workers=4, **kubeflow), "oss")


@pytest.mark.parametrize(
    ("kubeflow", "training", "target", "message"),
    [
        ({}, {}, "oss", "cannot share checkpoints in the cluster's own store: set kubeflow.stor"),
        (
            {"storage": "/mnt/sharedfolder", "steps": SHARED},
            *({}, "oss", "checkpoints in /mnt/sharedfolder"),
        ),
        (
            {"storage": "gs://b/m"},
            *({}, "oss", "cannot read artifacts that are not on gs://: set the pipeline root"),
        ),
        (ON_GS, {"accelerator": "mirrored"}, "oss", "accelerator is mirrored, for one machine"),
        (ON_GS, {"minutes": 60}, "oss", "training.minutes searches on one machine: remove one"),
        (ON_GS, {}, "vertex", "on Vertex AI use one machine with several GPUs"),
    ],
)
def test_what_several_workers_cannot_do(
    kubeflow: dict[str, Any], training: dict[str, Any], target: Target, message: str
) -> None:
    def check(workers: int) -> None:
        choices = config(workers=workers, **kubeflow)
        trained = dataclasses.replace(choices, training=TrainingConfig(**training))
        check_workers(trained, target)

    with pytest.raises(ConfigurationError, match=message):
        check(workers=4)
    check(workers=1)

"""Gives the Trainer step its workers, where several train together."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from components.contract.configuration import from_json, require, to_json
from components.contract.errors import ConfigurationError
from pipeline_def.config.config import Config
from pipeline_def.kubeflow.compile.spec_document import SpecDocument
from pipeline_def.kubeflow.specification import Target
from pipeline_def.kubeflow.step_interface import StepInterface, WorkerGroup
from pipeline_def.kubeflow.workers.artifact_exchange import check_storage
from pipeline_def.kubeflow.workers.worker_pools import custom_job
from pipeline_def.steps import TRAINER

_VERTEX = "pipeline_def.kubeflow.workers.vertex_trainer.VertexTrainer"
_CUSTOM_CONFIG = "custom_config"


def check_workers(config: Config, target: Target) -> None:
    """Make sure that several workers can reach what they share.

    Raises:
        ConfigurationError: they cannot, or Vertex AI would not know where to run them.
    """
    kubeflow, chosen = config.kubeflow, config.training.accelerator
    if kubeflow.workers == 1:
        return
    require(
        chosen in ("auto", "workers"),
        f"kubeflow.workers is {kubeflow.workers}, and training.accelerator is {chosen}, which is "
        "one machine's: leave it auto.",
    )
    if target == "vertex":
        missing = [name for name in ("project", "region") if not getattr(kubeflow, name)]
        require(
            not missing,
            f"kubeflow.workers is {kubeflow.workers}: the custom job of Vertex AI also needs "
            + " and ".join(f"kubeflow.{name}" for name in missing)
            + ".",
        )
        return
    _check_shared(config)


def _check_shared(config: Config) -> None:
    """Make sure that there is a place for checkpoints, and a way for artifacts."""
    kubeflow = config.kubeflow
    root, storage = kubeflow.pipeline_root or "", kubeflow.storage or kubeflow.pipeline_root
    check_storage(storage, kubeflow.step(TRAINER.id).volumes.values())
    if str(storage).startswith("gs://") and not root.startswith("gs://"):
        place = root or "the cluster's own store"
        raise ConfigurationError(
            f"kubeflow.workers is {kubeflow.workers}, and artifacts are in "
            f"{place}, which the workers cannot read: set "
            "kubeflow.pipeline_root to gs://…, or kubeflow.storage to a folder on a ReadWriteMany "
            "volume."
        )


def add_workers(document: SpecDocument, config: Config, *, target: Target, image: str) -> None:
    """Make the Trainer step start its workers, if there are several."""
    kubeflow = config.kubeflow
    if kubeflow.workers == 1:
        return
    step = kubeflow.step(TRAINER.id)
    if target == "oss":
        group = WorkerGroup(kubeflow.workers, step.image or image, step)
        _change_interface(document, workers=group)
        return
    _change_interface(document, executor=_VERTEX)
    job = custom_job(kubeflow, step, image=step.image or image, name=f"{config.name}-trainer")
    value = document.sources(TRAINER.id, "parameters")[_CUSTOM_CONFIG]["runtimeValue"]
    value["constant"] = json.dumps({**json.loads(value["constant"]), **job}, sort_keys=True)


def _change_interface(document: SpecDocument, **changes: Any) -> None:
    arguments = document.container(TRAINER.id)["args"]
    place = arguments.index("--interface") + 1
    interface = from_json(StepInterface, arguments[place])
    arguments[place] = to_json(dataclasses.replace(interface, **changes))

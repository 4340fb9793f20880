"""The Trainer step with two workers, from the specification to the exported model.

Processes on this machine stand for the pods, and a stub for the cluster and its operator.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from components.contract.configuration import to_json
from components.transform.config import TransformConfig
from pipeline_def.code_digest import code_digest
from pipeline_def.config.model import ModelConfig
from pipeline_def.config.trainer import TrainerConfig
from pipeline_def.config.training import TrainingConfig
from pipeline_def.kubeflow.kubernetes_api import Cluster
from pipeline_def.kubeflow.step import entrypoint
from tests.kubeflow.workers.kubernetes_server import POD, Job, KubernetesServer
from tests.kubeflow.workers.trainer_step import step_arguments
from tests.training.distribution.trainer_process import cluster


class Operator:
    """Runs a TFJob as training-operator does, in processes instead of pods."""

    def __init__(self, server: KubernetesServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.workers: list[subprocess.Popen[str]] = []
        server.on_create, server.state = self.start, self.state

    def start(self, job: Job) -> None:
        replicas = job["spec"]["tfReplicaSpecs"]["Worker"]
        command = replicas["template"]["spec"]["containers"][0]["command"]
        for index, environment in enumerate(cluster(replicas["replicas"])):
            self._start_worker(f"{job['metadata']['name']}-worker-{index}", command, environment)

    def _start_worker(self, pod: str, command: Sequence[str], environment: dict[str, str]) -> None:
        worker = subprocess.Popen(
            [sys.executable, "-W", "ignore", *(word.replace("$$", "$") for word in command[1:])],
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.workers.append(worker)
        log = self.server.logs.setdefault(pod, [])
        threading.Thread(target=self._log, args=(worker, log), daemon=True).start()

    def _log(self, worker: subprocess.Popen[str], log: list[tuple[str, str]]) -> None:
        assert worker.stdout
        for line in worker.stdout:
            time = datetime.datetime.now(datetime.UTC).isoformat().replace("+00:00", "Z")
            log.append((time, line.rstrip("\n")))

    def state(self) -> str:
        statuses = [worker.poll() for worker in self.workers]
        for (pod, _), status in zip(sorted(self.server.logs.items()), statuses, strict=True):
            if status:
                lines = [text for _, text in self.server.logs[pod]]
                self.server.fail_worker(pod, *lines, code=status)
        if any(statuses):
            return "Failed"
        return "Succeeded" if statuses[0] == 0 else "Running"


def arguments(folder: Path, examples: str, graph: str, **training: Any) -> list[str]:
    """The command of the Trainer step as KFP's launcher gives it, its artifacts on disk."""
    choices = TrainerConfig(
        transform=TransformConfig(size=32),
        model=ModelConfig(name="cnn", width=8),
        training=TrainingConfig(batch_size=16, **training),
        checkpoints="{storage}/checkpoints",
    )
    parameters = {
        "custom_config": to_json(choices),
        "run_fn": "pipeline_def.training.run_fn.run_fn",
        "train_args": '{"splits": ["train"]}',
        "eval_args": '{"splits": ["eval"]}',
        "code_digest": code_digest("Trainer"),
    }
    splits = ["train", "eval"]
    return step_arguments(folder, parameters, examples=examples, graph=graph, splits=splits)


@pytest.mark.slow
def test_two_workers_train_and_the_chief_exports(
    transformed: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KFP_POD_NAME", POD)
    with KubernetesServer() as server:
        operator = Operator(server, tmp_path)
        connection = server.cluster(tmp_path)
        monkeypatch.setattr(Cluster, "of_pod", staticmethod(lambda: connection))
        command = arguments(tmp_path, transformed.examples.uri, transformed.graph.uri, epochs=2)
        assert entrypoint.main(command) == 0, capsys.readouterr()
        assert [worker.wait(60) for worker in operator.workers] == [0, 0]
    assert "2 workers: Succeeded" in capsys.readouterr().out
    assert (tmp_path / "model" / "Format-Serving" / "saved_model.pb").is_file()
    history = json.loads((tmp_path / "model_run" / "history.json").read_text())
    assert len(history["loss"]) == 2
    output = json.loads((tmp_path / "output.json").read_text())
    [model] = output["artifacts"]["model"]["artifacts"]
    assert model["uri"] == f"{tmp_path}/model"
    left = [path.name for path in (tmp_path / "volume" / "models").rglob("*")]
    assert set(left) <= {"workers", "checkpoints"}

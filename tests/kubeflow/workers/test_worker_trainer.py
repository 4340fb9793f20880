"""The executor of each worker, and the whole step with two of them, one after the other."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tfx.types import standard_artifacts

from components.contract.configuration import to_json
from pipeline_def.config.kubeflow import StepConfig
from pipeline_def.kubeflow.contract import StepInterface, WorkerGroup
from pipeline_def.kubeflow.step import entrypoint
from pipeline_def.kubeflow.workers.cluster import Cluster
from pipeline_def.kubeflow.workers.worker_trainer import WorkerTrainer
from tests.kubeflow.workers.kubernetes_server import POD, Job, KubernetesServer

STANDARD = "tfx.types.standard_artifacts"
RUN_FN = f"{__name__}.train"


def train(fn_args: Any) -> None:
    """Write what a worker was given; only the chief exports, as Trainer's run_fn does."""
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    facts = {"task": task["index"], "config": fn_args.custom_config, "epochs": 3}
    if task["index"] == 0:
        Path(fn_args.serving_model_dir).mkdir(parents=True)
        Path(fn_args.serving_model_dir, "facts").write_text(json.dumps(facts))
    os.makedirs(fn_args.model_run_dir, exist_ok=True)
    Path(fn_args.model_run_dir, f"log-{task['index']}").write_text("")


def tf_config(index: int) -> str:
    cluster = {"worker": ["trainer-worker-0:2222", "trainer-worker-1:2222"]}
    return json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})


def properties(**config: Any) -> dict[str, Any]:
    splits = '{"splits": ["train"]}'
    return {
        "run_fn": RUN_FN,
        "custom_config": json.dumps(config),
        "train_args": splits,
        "eval_args": splits,
    }


def examples(folder: Path) -> Path:
    (folder / "examples" / "Split-train").mkdir(parents=True)
    (folder / "examples" / "Split-train" / "shard-0").write_text("images")
    (folder / "graph").mkdir()
    return folder / "examples"


@pytest.mark.parametrize("index", [0, 1])
def test_only_the_chief_writes_the_outputs(
    index: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", tf_config(index))
    found, graph = standard_artifacts.Examples(), standard_artifacts.TransformGraph()
    found.uri, found.split_names = str(examples(tmp_path)), '["train"]'
    graph.uri = str(tmp_path / "graph")
    model, run = standard_artifacts.Model(), standard_artifacts.ModelRun()
    model.uri, run.uri = str(tmp_path / "model"), str(tmp_path / "run")
    WorkerTrainer().Do(
        {"examples": [found], "transform_graph": [graph]},
        {"model": [model], "model_run": [run]},
        properties(epochs=3, ai_platform_training_args={"project": "p"}),
    )
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    chiefs = {"model/Format-Serving/facts", "run/log-0"}
    assert written - {"examples/Split-train/shard-0"} == (set() if index else chiefs)
    if not index:
        facts = json.loads((tmp_path / "model/Format-Serving/facts").read_text())
        # What tells TFX of the job is nothing of run_fn's.
        assert facts["config"] == {"epochs": 3}


def step_arguments(folder: Path) -> list[str]:
    """The command of the Trainer step, as KFP's launcher gives it; its artifacts are on disk."""
    group = WorkerGroup(
        2,
        "registry/image:1",
        "pipeline_def.kubeflow.workers.worker_trainer.WorkerTrainer",
        StepConfig(volumes={"claim": str(folder / "volume")}),
    )
    interface = StepInterface(
        executor="tfx.components.trainer.executor.GenericExecutor",
        pipeline="images",
        inputs={
            "examples": f"{STANDARD}.Examples",
            "transform_graph": f"{STANDARD}.TransformGraph",
        },
        outputs={"model": f"{STANDARD}.Model", "model_run": f"{STANDARD}.ModelRun"},
        workers=group,
    )
    found = {"uri": str(examples(folder)), "metadata": {"split_names": '["train"]'}}
    listed = {"examples": found, "transform_graph": {"uri": str(folder / "graph")}}
    made = {key: {"uri": str(folder / key), "type": {}} for key in ("model", "model_run")}
    given = {
        "inputs": {
            "parameterValues": {**properties(epochs=3), "storage": f"{folder}/volume/models"},
            "artifacts": {key: {"artifacts": [one]} for key, one in listed.items()},
        },
        "outputs": {
            "artifacts": {key: {"artifacts": [one]} for key, one in made.items()},
            "outputFile": str(folder / "out" / "output.json"),
        },
    }
    own = ("--step", "Trainer", "--interface", to_json(interface))
    return [*own, "--executor_input", json.dumps(given)]


def test_the_whole_step_with_two_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last worker ends after the chief, and must not replace what the chief has written."""

    def operate(job: Job) -> None:
        [container] = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
        for index in (0, 1):
            monkeypatch.setenv("TF_CONFIG", tf_config(index))
            assert entrypoint.main(container["command"][3:]) == 0
        monkeypatch.delenv("TF_CONFIG")

    with KubernetesServer() as server:
        server.on_create = operate
        cluster = server.cluster(tmp_path)
        monkeypatch.setattr(Cluster, "of_pod", staticmethod(lambda: cluster))
        monkeypatch.setenv("KFP_POD_NAME", POD)
        monkeypatch.setattr("pipeline_def.kubeflow.workers.tf_job_step.time.sleep", lambda _: None)
        assert entrypoint.main(step_arguments(tmp_path)) == 0
        assert not server.jobs
    output = json.loads((tmp_path / "out" / "output.json").read_text())
    [model] = output["artifacts"]["model"]["artifacts"]
    assert model["uri"] == str(tmp_path / "model")
    facts = json.loads((tmp_path / "model" / "Format-Serving" / "facts").read_text())
    assert facts == {"task": 0, "config": {"epochs": 3}, "epochs": 3}
    assert [path.name for path in (tmp_path / "model_run").iterdir()] == ["log-0"]
    assert not list((tmp_path / "volume" / "models" / "workers").iterdir())

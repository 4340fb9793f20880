"""The whole step with two workers, one after the other."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from components.contract.configuration import to_json
from pipeline_def.config.kubeflow import StepConfig
from pipeline_def.kubeflow.kubernetes_api import KubernetesClient
from pipeline_def.kubeflow.step import entrypoint
from pipeline_def.kubeflow.step_interface import (
    SETTINGS_VARIABLE,
    PodSettings,
    StepInterface,
    WorkerGroup,
)
from tests.kubeflow.workers.kubernetes_server import POD, Job, KubernetesServer

RUN_FN = f"{__name__}.train"


def train(fn_args: Any) -> None:
    """Write the worker's input; only the chief writes to the outputs, as Trainer's run_fn does."""
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    images = Path(os.path.dirname(fn_args.train_files[0]), "shard-0").read_text()
    facts = {"task": task["index"], "config": fn_args.custom_config, "images": images}
    if task["index"]:
        fn_args.serving_model_dir = tempfile.mkdtemp()
        return
    for folder in (fn_args.serving_model_dir, fn_args.model_run_dir):
        os.makedirs(folder)
    Path(fn_args.serving_model_dir, "facts").write_text(json.dumps(facts))
    Path(fn_args.model_run_dir, "log").write_text("")


def tf_config(container: Any, index: int) -> str:
    """TF_CONFIG as Kubernetes writes it for a worker."""
    variables = {one["name"]: one.get("value", str(index)) for one in container["env"]}
    text = str(variables["TF_CONFIG"])
    assert list(variables) == ["JOB_COMPLETION_INDEX", "TF_CONFIG"]
    return text.replace("$(JOB_COMPLETION_INDEX)", variables["JOB_COMPLETION_INDEX"])


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


def step_arguments(folder: Path, examples: Path, parameters: dict[str, Any]) -> list[str]:
    """The command of the Trainer step as KFP's launcher gives it; its volume is in `folder`."""
    types = "tfx.types.standard_artifacts"
    interface = StepInterface(
        step="Trainer",
        executor="tfx.components.trainer.executor.GenericExecutor",
        pipeline="images",
        inputs={"examples": f"{types}.Examples", "transform_graph": f"{types}.TransformGraph"},
        outputs={"model": f"{types}.Model", "model_run": f"{types}.ModelRun"},
        workers=2,
    )
    found = {
        "examples": {"uri": str(examples), "metadata": {"split_names": '["train"]'}},
        "transform_graph": {"uri": str(folder / "graph")},
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


def test_the_whole_step_with_two_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last worker ends after the chief and must not replace its output."""

    def operate(job: Job) -> None:
        [container] = job["spec"]["template"]["spec"]["containers"]
        for index in (0, 1):
            monkeypatch.setenv("TF_CONFIG", tf_config(container, index))
            assert entrypoint.main(container["command"][3:]) == 0
        monkeypatch.delenv("TF_CONFIG")

    with KubernetesServer() as server:
        server.on_create = operate
        cluster = server.cluster()
        monkeypatch.setattr(KubernetesClient, "of_pod", staticmethod(lambda: cluster))
        monkeypatch.setenv("KFP_POD_NAME", POD)
        monkeypatch.setattr("time.sleep", lambda _: None)
        config = properties(epochs=3, checkpoints="{storage}/checkpoints")
        arguments = step_arguments(tmp_path, examples(tmp_path), config)
        group = WorkerGroup("i", StepConfig(volumes={"claim": f"{tmp_path}/volume"}))
        monkeypatch.setenv(SETTINGS_VARIABLE, to_json(PodSettings(workers=group)))
        assert entrypoint.main(arguments) == 0
        assert not server.jobs
        assert not server.services
    output = json.loads((tmp_path / "output.json").read_text())
    [model] = output["artifacts"]["model"]["artifacts"]
    assert model["uri"] == str(tmp_path / "model")
    facts = json.loads((tmp_path / "model" / "Format-Serving" / "facts").read_text())
    checkpoints = f"{tmp_path}/volume/models/checkpoints"
    given = {"epochs": 3, "checkpoints": checkpoints}
    assert facts == {"task": 0, "config": given, "images": "images"}
    assert [path.name for path in (tmp_path / "model_run").iterdir()] == ["log"]
    assert not list((tmp_path / "volume" / "models" / "workers").iterdir())

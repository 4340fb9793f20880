"""The step that starts a Job and follows it, against a stub of the Kubernetes API."""

import json
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tfx import types
from tfx.dsl.components.base import base_executor

from components.contract.configuration import to_json
from components.contract.errors import ConfigurationError, ServiceError
from pipeline_def.config.kubeflow import StepConfig
from pipeline_def.kubeflow.kubernetes_api import KubernetesClient
from pipeline_def.kubeflow.step import entrypoint, worker_step
from pipeline_def.kubeflow.step import executor_io as message
from pipeline_def.kubeflow.step.worker_step import job_name, run_workers
from pipeline_def.kubeflow.step_interface import SETTINGS_VARIABLE, PodSettings, StepInterface
from tests.kubeflow.conftest import command, executor_input
from tests.kubeflow.step.kubernetes_server import POD, Job, KubernetesServer, docs_role

RUN = "images/0b6a3c1e-0000-4000-8000-000000000000"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesServer]:
    monkeypatch.setenv("KFP_POD_NAME", POD)
    with KubernetesServer() as running:
        yield running


class Trainer(base_executor.BaseExecutor):
    """Says who it is and what it got; only the chief writes the model, as our executor does."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        [examples], [model] = input_dict["examples"], output_dict["model"]
        task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
        model.set_string_custom_property("told", f"{task} {exec_properties['checkpoints']}")
        if not task:
            Path(model.uri).mkdir(parents=True)
            Path(model.uri, "weights").write_text(Path(examples.uri, "shard").read_text())


class Step:
    """The step as KFP's launcher starts it, with artifacts in a store mounted at `/minio`."""

    def __init__(self, server: KubernetesServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.volume = folder / "volume"
        self.volume.mkdir()
        (folder / "minio" / "b" / "examples").mkdir(parents=True)
        (folder / "minio" / "b" / "examples" / "shard").write_text("images")
        self.given = executor_input(
            folder / "output.json",
            {"examples": {"uri": "minio://b/examples"}},
            {"model": {"uri": f"minio://b/{RUN}/Trainer/model"}},
            storage=str(self.volume / "models"),
            checkpoints="{storage}/checkpoints",
        )
        volumes = {"claim": str(self.volume)}
        self.settings = StepConfig(image="registry/image:1-gpu", volumes=volumes, gpus=1)
        self.interface = StepInterface(
            step="Trainer",
            executor=f"{__name__}.Trainer",
            pipeline="images",
            inputs={"examples": "tfx.types.standard_artifacts.Examples"},
            outputs={"model": "tfx.types.standard_artifacts.Model"},
            workers=4,
        )

    @property
    def name(self) -> str:
        return job_name("Trainer", self.given)

    @property
    def chief(self) -> str:
        return self.pod(0)

    def pod(self, index: int) -> str:
        return f"{self.name}-{index}-x7k2p"

    def run(self) -> dict[str, Any]:
        cluster = self.server.cluster()
        return run_workers(self.given, self.interface, self.settings, cluster=cluster)


@pytest.fixture
def step(server: KubernetesServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Step:
    monkeypatch.setitem(message._MOUNTS, "minio://", f"{tmp_path}/minio/")
    monkeypatch.setattr(worker_step, "_INTERVAL_SECONDS", 0.01)
    return Step(server, tmp_path)


def worker_of(job: Job) -> tuple[Any, list[str]]:
    """Return the container of a worker, and its command."""
    [container] = job["spec"]["template"]["spec"]["containers"]
    command = [word.replace("$$", "$") for word in container["command"]]
    assert command[:3] == ["python", "-m", "pipeline_def.kubeflow.step.entrypoint"]
    return container, command


def given_to(job: Job) -> Any:
    """Return the executor input of the workers."""
    _, command = worker_of(job)
    return json.loads(command[command.index("--executor_input") + 1])


def train(job: Job) -> None:
    """Act as the chief: read the input, write the model and the executor output."""
    given = given_to(job)
    [examples] = given["inputs"]["artifacts"]["examples"]["artifacts"]
    [model] = given["outputs"]["artifacts"]["model"]["artifacts"]
    Path(model["uri"]).mkdir(parents=True)
    (Path(model["uri"]) / "weights").write_text((Path(examples["uri"]) / "shard").read_text())
    output = {"artifacts": {"model": {"artifacts": [{**model, "metadata": {"epochs": 3}}]}}}
    written = Path(given["outputs"]["outputFile"])
    written.parent.mkdir(parents=True, exist_ok=True)
    written.write_text(json.dumps(output))


def test_the_whole_step(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last worker ends after the chief and must not replace its output."""

    def operate(job: Job) -> None:
        container, words = worker_of(job)
        tf_config = next(var["value"] for var in container["env"] if var["name"] == "TF_CONFIG")
        for index in ("0", "1"):
            config = tf_config.replace("$(JOB_COMPLETION_INDEX)", index)
            monkeypatch.setenv("TF_CONFIG", config)
            assert entrypoint.main(words[3:]) == 0
        monkeypatch.delenv("TF_CONFIG")

    step.server.on_create = operate
    cluster = step.server.cluster()
    monkeypatch.setattr(KubernetesClient, "of_pod", staticmethod(lambda: cluster))
    monkeypatch.setenv(SETTINGS_VARIABLE, to_json(PodSettings(workers=step.settings)))
    assert entrypoint.main(command("Trainer", step.interface, step.given)) == 0
    assert not step.server.jobs
    assert not step.server.services
    output = json.loads((step.folder / "output.json").read_text())
    [model] = output["artifacts"]["model"]["artifacts"]
    assert model["uri"] == f"minio://b/{RUN}/Trainer/model"
    assert model["metadata"]["told"] == f"0 {step.volume}/models/checkpoints"
    assert (step.folder / f"minio/b/{RUN}/Trainer/model/weights").read_text() == "images"
    assert not list((step.volume / "models" / "workers").iterdir())


def test_artifacts_on_gs_are_used_in_place(
    step: Step, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = json.loads(json.dumps(step.given).replace("minio://b", f"{tmp_path}/minio/b"))
    monkeypatch.setattr("pipeline_def.kubeflow.step.artifact_exchange._CLOUD", f"{tmp_path}/")
    step.given, step.server.on_create = given, train
    [model] = step.run()["artifacts"]["model"]["artifacts"]
    assert model["uri"] == f"{tmp_path}/minio/b/{RUN}/Trainer/model"
    [job] = step.server.created
    assert given_to(job)["inputs"]["artifacts"] == given["inputs"]["artifacts"]


def test_the_state_and_the_log_of_the_chief_are_printed(
    step: Step, capsys: pytest.CaptureFixture[str]
) -> None:
    states = ["Suspended", "Pending", "Running", "Running", "Running", "Succeeded"]
    step.server.on_create, step.server.script = train, deque(states)
    # Four lines a look, three a second: a second is read again, and cut in two.
    lines = [(f"2026-11-22T10:00:0{n // 3}.{n % 3 * 25}Z", f"line {n}\rdone") for n in range(16)]
    growing = iter([[], [], lines[:4], lines[:8], lines[:8], lines])
    step.server.on_look = lambda state: step.server.logs.update({step.chief: next(growing)})
    step.run()
    assert capsys.readouterr().out.split("\n")[:-1] == [
        f"Job {step.name}: Suspended",
        f"Job {step.name}: Pending",
        f"Job {step.name}: Running",
        *(f"line {n}\rdone" for n in range(8)),
        f"Job {step.name}: Succeeded",
        *(f"line {n}\rdone" for n in range(8, 16)),
    ]


def test_the_first_failure_is_reported(step: Step, capsys: pytest.CaptureFixture[str]) -> None:
    step.server.script = deque(["Running", "Failed"])
    lost = "Trainer: failed: Connection reset"
    step.server.fail_worker(step.chief, lost, at="10:00:05")
    gone = "Trainer: error: Another worker has stopped."
    step.server.fail_worker(step.pod(3), gone, at="10:00:03", code=138)
    step.server.fail_worker(step.pod(1), lost, at="10:00:04.5", code=1)
    said = "Trainer: error: There are no images."
    step.server.fail_worker(step.pod(2), "a trace", said, at="10:00:04.5", code=2)
    with pytest.raises(ServiceError, match=f"^{step.pod(2)}: There are no images.$"):
        step.run()
    assert f"Last lines of {step.pod(2)}:\na trace" in capsys.readouterr().out
    assert not step.server.jobs


def test_a_killed_worker_a_failure_without_pods_and_a_job_that_is_removed(step: Step) -> None:
    step.server.script = deque(["Failed"])
    with pytest.raises(ServiceError, match=f"failed: Job {step.name} is Failed.$"):
        step.run()
    step.server.fail_worker(step.pod(1), "epoch 3", code=137, reason="OOMKilled")
    with pytest.raises(ServiceError, match=r"-1-x7k2p ended with status 137 \(OOMKilled\)\.$"):
        step.run()
    step.server.on_create = lambda job: step.server.jobs.clear()
    with pytest.raises(ServiceError, match="was removed while its workers trained"):
        step.run()


def test_a_cancelled_step_cleans_up(step: Step) -> None:
    step.server.script = deque(["Running"])
    before = signal.getsignal(signal.SIGTERM)
    threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
    with pytest.raises(SystemExit) as ended:
        step.run()
    assert ended.value.code == 143
    assert step.server.created
    assert not step.server.jobs
    assert not list((step.volume / "models" / "workers").iterdir())
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_job_of_a_killed_attempt_is_replaced(step: Step) -> None:
    """Both have the same name, as two jobs would write the same outputs."""
    left = step.volume / "models" / "workers" / step.name
    left.mkdir(parents=True)
    (left / "executor_output.json").write_text("of the attempt before")
    step.server.jobs[step.name] = {"metadata": {"name": step.name}}
    step.server.slow_deletions = 3
    step.server.on_create = train
    step.run()
    assert len(step.server.created) == 1
    assert not left.exists()


def test_a_short_outage_of_the_api_is_tolerated(
    step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_for_a_while(job: Job) -> None:
        train(job)
        step.server.failures = 5

    step.server.on_create = fail_for_a_while
    step.run()
    monkeypatch.setattr(worker_step, "_MOST_FAILED_POLLS", 3)
    with pytest.raises(ServiceError, match=r"could not read the Job .*503: etcdserver"):
        step.run()


def test_a_refused_request_is_one_sentence_and_does_not_hide_the_result(
    step: Step, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse_to_delete(job: Job) -> None:
        train(job)
        step.server.role[0]["verbs"].remove("delete")

    step.server.on_create = refuse_to_delete
    assert step.run()
    assert "give the step's service account" in capsys.readouterr().out
    step.server.role = docs_role()[1:]
    with pytest.raises(ServiceError, match=r"could not .* Job .*the role in docs") as raised:
        step.run()
    assert "secret-token" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_outside_of_a_pod_and_storage_that_workers_cannot_share(
    step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ServiceError, match="this container has no service account"):
        run_workers(step.given, step.interface, step.settings)
    step.given["inputs"]["parameterValues"]["storage"] = "/elsewhere"
    with pytest.raises(ConfigurationError, match="cannot share checkpoints in /elsewhere"):
        step.run()
    assert not step.server.created

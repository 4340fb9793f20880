"""The client of Vertex AI: Google's library against a local gRPC server that records requests.

Only the channel, the credentials and the check of the pipeline root's bucket are replaced.
"""

import functools
import sys
from collections import deque
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import yaml
from google.auth import exceptions as auth_exceptions
from google.auth.credentials import AnonymousCredentials

from components.contract.errors import UserError
from pipeline_def.kubeflow.client.run import RunFollower, RunRequest, StartedRun
from pipeline_def.kubeflow.client.vertex_client import Location, start_run
from tests.kubeflow.conftest import compile_file

pytestmark = pytest.mark.slow


@functools.cache
def google() -> Any:
    """Import Google's library only when a test needs it, as that takes seconds."""
    from google.cloud.aiplatform import initializer
    from google.cloud.aiplatform.utils import gcs_utils
    from google.cloud.aiplatform_v1.services.pipeline_service import transports
    from google.cloud.aiplatform_v1.types import pipeline_job, pipeline_service

    return SimpleNamespace(
        initializer=initializer,
        gcs_utils=gcs_utils,
        transports=transports,
        pipeline_job=pipeline_job,
        pipeline_service=pipeline_service,
    )


SERVICE = "google.cloud.aiplatform.v1.PipelineService"
PLACE = Location("my-project", "us-central1")


class Vertex:
    """The local server, which records requests and answers as a test tells it to."""

    def __init__(self) -> None:
        self.created: list[Any] = []
        self.refusal: tuple[Any, str] | None = None
        self.answers: deque[Any] = deque()

    def create(self, request: Any, context: Any) -> Any:
        self._refuse(context)
        self.created.append(request)
        job = google().pipeline_job.PipelineJob(request.pipeline_job)
        job.name = f"projects/123/locations/us-central1/pipelineJobs/{request.pipeline_job_id}"
        return job

    def get(self, request: Any, context: Any) -> Any:
        self._refuse(context)
        answer = self.answers.popleft() if len(self.answers) > 1 else self.answers[0]
        assert request.name.startswith("projects/123/locations/us-central1/pipelineJobs/images-")
        return google().pipeline_job.PipelineJob(name="pipelineJobs/image-pipeline-1", **answer)

    def _refuse(self, context: Any) -> None:
        if self.refusal:
            context.abort(*self.refusal)

    def handler(self) -> Any:
        types = google().pipeline_service
        methods = {
            "CreatePipelineJob": (self.create, types.CreatePipelineJobRequest),
            "GetPipelineJob": (self.get, types.GetPipelineJobRequest),
        }
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                name: grpc.unary_unary_rpc_method_handler(
                    call,
                    request_deserializer=request.deserialize,
                    response_serializer=google().pipeline_job.PipelineJob.serialize,
                )
                for name, (call, request) in methods.items()
            },
        )


@pytest.fixture
def vertex(monkeypatch: pytest.MonkeyPatch) -> Iterator[Vertex]:
    stub = Vertex()
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((stub.handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    monkeypatch.setattr(
        google().transports.PipelineServiceGrpcTransport, "create_channel", lambda *_, **__: channel
    )
    monkeypatch.setattr(google().initializer.global_config, "_credentials", AnonymousCredentials())
    monkeypatch.setattr(
        google().gcs_utils,
        "create_gcs_bucket_for_pipeline_artifacts_if_it_does_not_exist",
        lambda **_: None,
    )
    yield stub
    channel.close()
    server.stop(None)


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The pipeline compiled for Vertex AI."""
    file = tmp_path_factory.mktemp("vertex") / "images.yaml"
    compile_file(file, "--target", "vertex", "--kubeflow.pipeline_root", "gs://bucket/compiled")
    return str(file)


def start(spec: str, **changes: Any) -> StartedRun:
    fields = {"name": "first", "parameters": {}, "pipeline_root": "gs://bucket/root"}
    return start_run(PLACE, RunRequest(path=spec, documents=[], **(fields | changes)))


def sentence(spec: str, **changes: Any) -> str:
    with pytest.raises(UserError) as caught:
        start(spec, **changes)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


def test_the_job_that_is_asked_for(
    vertex: Vertex, spec: str, capfd: pytest.CaptureFixture[str]
) -> None:
    compiled = yaml.safe_load(Path(spec).read_text())
    started = start(
        spec,
        parameters={"training_epochs": 300, "training_learning_rate": 0.5, "data": "300"},
        service_account="runner@my-project.iam.gserviceaccount.com",
        no_cache=True,
    )
    (request,) = vertex.created
    job = request.pipeline_job
    assert request.parent == "projects/my-project/locations/us-central1"
    assert request.pipeline_job_id.startswith("images-")
    assert job.display_name == "first"
    assert job.service_account == "runner@my-project.iam.gserviceaccount.com"
    assert job.runtime_config.gcs_output_directory == "gs://bucket/root"
    values = job.runtime_config._pb.parameter_values
    assert values["training_epochs"].number_value == 300
    assert values["training_learning_rate"].number_value == 0.5
    assert values["data"].string_value == "300"
    sent = google().pipeline_job.PipelineJob.to_dict(job)["pipeline_spec"]
    tasks = sent["root"]["dag"]["tasks"]
    assert tasks.keys() == compiled["root"]["dag"]["tasks"].keys()
    assert tasks["Trainer"]["cachingOptions"] == {"enableCache": False}
    assert sent["deploymentSpec"] == compiled["deploymentSpec"]
    name = f"projects/123/locations/us-central1/pipelineJobs/{request.pipeline_job_id}"
    page = "https://console.cloud.google.com/vertex-ai/locations/us-central1/pipelines/runs/"
    assert (started.run_id, started.url) == (name, f"{page}{request.pipeline_job_id}?project=123")
    assert capfd.readouterr() == ("", "")
    start(spec, pipeline_root=None)
    default = vertex.created[1].pipeline_job.runtime_config
    assert default.gcs_output_directory == "gs://bucket/compiled"
    assert "stepz is not found" in sentence(spec, parameters={"stepz": 1})


@pytest.mark.parametrize(
    ("code", "words", "expected"),
    [
        ("PERMISSION_DENIED", "act as", "(403: act as): sign in with `gcloud auth"),
        ("UNAVAILABLE", "down", "(503: down)"),
    ],
)
def test_a_refusal(vertex: Vertex, spec: str, code: str, words: str, expected: str) -> None:
    vertex.refusal = getattr(grpc.StatusCode, code), words
    told = f"Vertex AI in us-central1, project my-project, could not start a run {expected}"
    assert told in sentence(spec)


def test_no_credentials(vertex: Vertex, spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object, **__: object) -> None:
        raise auth_exceptions.DefaultCredentialsError("long\ntext")

    monkeypatch.setattr(google().initializer.global_config, "_credentials", None)
    monkeypatch.setattr("google.auth.default", nothing)
    assert "gcloud auth application-default login" in sentence(spec)
    assert vertex.created == []


def test_the_library_is_missing(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    google()
    monkeypatch.setitem(sys.modules, "google.cloud.aiplatform", None)
    monkeypatch.delattr("google.cloud.aiplatform")
    assert "uv sync --extra vertex" in sentence(spec)


def job(state: str, *tasks: dict[str, Any], error: str = "") -> dict[str, Any]:
    own = {"task_id": 1, "task_name": "image-pipeline-1", "state": "RUNNING"}
    return {
        "state": f"PIPELINE_STATE_{state}",
        "error": {"message": error},
        "job_detail": {"task_details": [own, *tasks]},
    }


def task(number: int, name: str, state: str, end: int | None = None, **more: Any) -> Any:
    times = {"start_time": {"seconds": 100}} | ({"end_time": {"seconds": end}} if end else {})
    return {"task_id": number, "task_name": name, "state": state} | times | more


def follow(spec: str) -> tuple[str, list[str]]:
    lines: list[str] = []
    state = RunFollower(start(spec), lines.append, interval=0.01).follow()
    return state, lines


def test_follow_shows_each_change_of_a_task_once(vertex: Vertex, spec: str) -> None:
    gen = task(2, "gen", "SKIPPED", 100)
    vertex.answers.extend(
        [
            job("QUEUED"),
            job("PENDING"),
            job("RUNNING", gen, task(3, "trainer", "PENDING")),
            job("RUNNING", gen, task(3, "trainer", "RUNNING")),
            job(
                "SUCCEEDED",
                gen,
                task(3, "trainer", "SUCCEEDED", 412),
                task(4, "pusher", "NOT_TRIGGERED"),
            ),
        ]
    )
    state, lines = follow(spec)
    assert state == "SUCCEEDED"
    assert lines[:-1] == [
        "gen: CACHED",
        "trainer: RUNNING",
        "trainer: SUCCEEDED after 312 s",
        "pusher: SKIPPED",
    ]
    assert lines[-1].startswith("Run SUCCEEDED: https://console.cloud.google.com/")
    failed = task(3, "trainer", "FAILED", 412, error={"message": "exit code\n137."})
    vertex.answers.extend([job("FAILED", failed, error="the job failed")] * 2)
    vertex.answers.popleft()
    state, lines = follow(spec)
    assert state == "FAILED"
    assert lines[-1].startswith("Run FAILED in the task trainer: exit code 137; see https://")

"""The custom job of Vertex AI: its worker pools, and how TFX's extension starts it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from components.contract.errors import ServiceError
from pipeline_def.config.kubeflow import KubeflowConfig, StepConfig
from pipeline_def.kubeflow.compile.workers import custom_job

KUBEFLOW = KubeflowConfig(
    workers=4, project="project-1", region="europe-west4", worker_account="trainer@project-1"
)
STEP = StepConfig(gpus=2, env={"B": "2", "A": "1"})


def job_of(step: StepConfig = STEP, kubeflow: KubeflowConfig = KUBEFLOW) -> dict[str, Any]:
    made = custom_job(kubeflow, step, image="registry/image:1", name="images-trainer")
    found: dict[str, Any] = made["ai_platform_training_args"]
    return found


def test_the_first_pool_is_the_chief_and_the_second_the_others() -> None:
    chief, others = job_of()["job_spec"]["worker_pool_specs"]
    assert (chief["replica_count"], others["replica_count"]) == (1, 3)
    assert {**chief, "replica_count": 3} == others
    assert chief["machine_spec"] == {
        "machine_type": "n1-standard-8",
        "accelerator_type": "NVIDIA_TESLA_T4",
        "accelerator_count": 2,
    }
    assert [one["name"] for one in chief["container_spec"]["env"]] == ["A", "B"]
    # TFX writes into each of them.
    chief["container_spec"]["command"] = ["python"]
    assert "command" not in others["container_spec"]


@pytest.mark.slow
@pytest.mark.parametrize("step", [STEP, StepConfig()], ids=["GPUs", "none"])
def test_the_job_matches_googles_message(step: StepConfig) -> None:
    """Importing google-cloud-aiplatform takes seconds."""
    from google.cloud.aiplatform_v1.types import CustomJobSpec
    from google.protobuf import json_format

    for kubeflow in (KUBEFLOW, KubeflowConfig(workers=2, project="p", region="r")):
        text = json.dumps(job_of(step, kubeflow)["job_spec"])
        # Unlike its constructor, the parser of JSON refuses unknown fields and enumerators.
        message = json_format.Parse(text, CustomJobSpec.pb()())
        assert len(message.worker_pool_specs) == 2
        assert message.worker_pool_specs[0].container_spec.image_uri == "registry/image:1"
        assert message.scheduling.restart_job_on_worker_restart
        with pytest.raises(json_format.ParseError):
            json_format.Parse(text.replace("machine_spec", "machines"), CustomJobSpec.pb()())


class JobService:
    """Stub of Google's client whose jobs end at once."""

    def __init__(self, **_: Any) -> None:
        self.jobs: list[Any] = []

    def create_custom_job(self, *, parent: str, custom_job: Any) -> Any:
        from google.cloud.aiplatform_v1.types import CustomJob

        self.jobs.append((parent, CustomJob(custom_job)))
        return CustomJob(name=f"{parent}/customJobs/1")

    state = "JOB_STATE_SUCCEEDED"

    def get_custom_job(self, *, name: str, retry: Any) -> Any:
        from google.cloud.aiplatform_v1.types import CustomJob, JobState

        error = {"message": "Replica workerpool1-0 exited with 1."}
        return CustomJob(name=name, state=JobState[self.state], error=error)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> JobService:
    from tfx.extensions.google_cloud_ai_platform import training_clients

    made = JobService()
    monkeypatch.setattr(training_clients.gapic, "JobServiceClient", lambda **_: made)
    return made


def properties() -> dict[str, Any]:
    added = custom_job(KUBEFLOW, STEP, image="registry/image:1", name="images-trainer")
    return {"run_fn": "a.run_fn", "custom_config": json.dumps({"epochs": 3, **added})}


@pytest.mark.slow
def test_tfx_starts_our_trainer_in_every_pool(service: JobService, tmp_path: Path) -> None:
    from tfx.types import standard_artifacts
    from tfx.utils import import_utils

    from pipeline_def.kubeflow.workers.vertex_trainer import VertexTrainer
    from pipeline_def.kubeflow.workers.worker_trainer import WorkerTrainer

    model = standard_artifacts.Model()
    model.uri = "gs://bucket/model"
    VertexTrainer().Do({}, {"model": [model]}, properties())
    [(parent, job)] = service.jobs
    assert parent == "projects/project-1/locations/europe-west4"
    assert job.display_name == "images-trainer"
    assert job.job_spec.service_account == "trainer@project-1"
    commands = [list(pool.container_spec.command) for pool in job.job_spec.worker_pool_specs]
    assert commands[0] == commands[1]
    assert commands[0][:3] == ["python", "-m", "tfx.scripts.run_executor"]
    path = commands[0][commands[0].index("--executor_class_path") + 1]
    assert import_utils.import_class_by_path(path) is WorkerTrainer
    assert "gs://bucket/model" in commands[0][commands[0].index("--outputs") + 1]


@pytest.mark.slow
def test_a_failed_job_is_one_sentence(service: JobService) -> None:
    from pipeline_def.kubeflow.workers.vertex_trainer import VertexTrainer

    service.state = "JOB_STATE_FAILED"
    with pytest.raises(ServiceError, match=r"failed on Vertex AI: Job .*workerpool1-0") as raised:
        VertexTrainer().Do({}, {}, properties())
    assert "\n" not in str(raised.value)

"""Starts a run of a compiled specification on Vertex AI Pipelines, and follows it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from components.contract.errors import ConfigurationError, ServiceError
from pipeline_def.kubeflow.client.run import RunRequest, RunView, StartedRun, TaskView
from pipeline_def.kubeflow.client.run_follower import follow, ignore
from pipeline_def.kubeflow.service_errors import Caller, Unreachable, one_line

# Of a request, seconds.
_TIMEOUT = 60.0

# Vertex AI's words for what the open-source API calls otherwise.
_TASK_STATES = {
    "STATE_UNSPECIFIED": "",
    "SKIPPED": "CACHED",
    "NOT_TRIGGERED": "SKIPPED",
    "CANCEL_PENDING": "CANCELING",
    "CANCELLING": "CANCELING",
    "CANCELLED": "CANCELED",
}
_RUN_STATES = {"QUEUED": "PENDING", "CANCELLED": "CANCELED", "CANCELLING": "CANCELING"}

_SIGN_IN = (
    "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to the "
    "file of a service account's key"
)
_RIGHTS = (
    "the caller needs the role Vertex AI User and must be allowed to act as the service account"
)


@dataclass(frozen=True)
class Location:
    """Where the run is."""

    project: str
    region: str

    def caller(self) -> Caller:
        """Return who asks whom."""
        service = f"Vertex AI in {self.region}, project {self.project},"
        return Caller(service, "these credentials", _SIGN_IN, _RIGHTS)


def start_run(location: Location, request: RunRequest) -> StartedRun:
    """Submit the specification as a pipeline job.

    The library makes the bucket of the pipeline root where it is missing.

    Raises:
        UserError: The library or credentials are missing, or Vertex AI refuses.
    """
    library = _library()
    with _sentences(location, "start a run"):
        job = library.PipelineJob(
            display_name=request.name,
            template_path=request.path,
            pipeline_root=request.pipeline_root,
            parameter_values=dict(request.parameters),
            enable_caching=request.cache,
            project=location.project,
            location=location.region,
        )
        job.submit(service_account=request.service_account, create_request_timeout=_TIMEOUT)
        return StartedRun(str(job.resource_name), str(job._dashboard_uri()))


def follow_run(
    location: Location,
    run_id: str,
    write: Callable[[str], None],
    *,
    see: Callable[[RunView], None] = ignore,
    changes: bool = True,
    interval: float = 10.0,
) -> str:
    """Follow the job `StartedRun.run_id` as `run_follower.follow` does."""
    library, action = _library(), "read the run"
    with _sentences(location, action):
        job = library.PipelineJob.get(run_id, project=location.project, location=location.region)

    def read() -> RunView:
        with _sentences(location, action):
            # Not `job.state`, which sets no time limit.
            return _run_view(job.api_client.get_pipeline_job(name=run_id, timeout=_TIMEOUT))

    url = str(job._dashboard_uri())
    return follow(read, write, url=url, interval=interval, see=see, changes=changes)


def _library() -> Any:
    try:
        from google.cloud import aiplatform
    except ImportError:
        raise ConfigurationError(
            "Vertex AI needs the package google-cloud-aiplatform: run `uv sync --extra vertex`."
        ) from None
    return aiplatform


def _run_view(resource: Any) -> RunView:
    # The job itself is among its tasks, under its own identifier.
    own = resource.name.rsplit("/", 1)[-1]
    tasks = resource.job_detail.task_details
    views = tuple(_task_view(task) for task in tasks if task.task_name != own)
    state = resource.state.name.removeprefix("PIPELINE_STATE_")
    return RunView(_RUN_STATES.get(state, state), views, resource.error.message)


def _task_view(task: Any) -> TaskView:
    seconds = None
    if task.start_time and task.end_time:
        seconds = (task.end_time - task.start_time).total_seconds()
    state = _TASK_STATES.get(task.state.name, task.state.name)
    return TaskView(str(task.task_id), task.task_name, state, seconds, task.error.message)


@contextlib.contextmanager
def _sentences(location: Location, action: str) -> Iterator[None]:
    """Turn the library's errors into one sentence each, and keep its log off the terminal."""
    from google.api_core import exceptions as api
    from google.auth import exceptions as auth

    # For a specification of TFX the library turns its own log on, so a level would not do.
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    except auth.TransportError:
        raise Unreachable(
            "Google's sign-in service cannot be reached: check the network."
        ) from None
    except auth.GoogleAuthError:
        raise ConfigurationError(
            f"There are no usable Google Cloud credentials: {_SIGN_IN}."
        ) from None
    except api.GoogleAPIError as error:
        # A request that was repeated until its time was over has no status of its own.
        status = int(getattr(error, "code", None) or 504)
        message = one_line(getattr(error, "message", "") or str(error))
        raise location.caller().refusal(status, action, message) from None
    except OSError as error:
        raise ServiceError(f"Vertex AI: {one_line(str(error))}.") from None
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        raise ConfigurationError(
            f"Vertex AI cannot take this run: {one_line(str(error))}."
        ) from None
    finally:
        logging.disable(disabled)

"""Start a run of a compiled specification on Vertex AI, through Google's library, and follow it."""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from components.contract.errors import ConfigurationError
from pipeline_def.kubeflow.client.run import RunRequest, RunView, StartedRun, TaskView
from pipeline_def.service_errors import Unreachable, one_line, refusal

_REQUEST_TIMEOUT = 60.0
"""Seconds."""

# Vertex AI's states → those of the open-source API.
_TASK_STATES = {
    "STATE_UNSPECIFIED": "",
    "SKIPPED": "CACHED",
    "NOT_TRIGGERED": "SKIPPED",
    "CANCEL_PENDING": "CANCELING",
    "CANCELLING": "CANCELING",
    "CANCELLED": "CANCELED",
}
_RUN_STATES = {"QUEUED": "PENDING", "CANCELLED": "CANCELED", "CANCELLING": "CANCELING"}

_RIGHTS = (
    "sign in with `gcloud auth application-default login` or GOOGLE_APPLICATION_CREDENTIALS, as an "
    "account that has the role Vertex AI User and may act as the service account"
)


@dataclass(frozen=True)
class Location:
    """Where a run is."""

    project: str
    region: str


def start_run(location: Location, request: RunRequest) -> StartedRun:
    """Submit the specification as a pipeline job.

    The library creates the bucket of the pipeline root if it is missing.
    """
    library = _library()
    with _one_sentence_errors(location, "start a run"):
        job = library.PipelineJob(
            display_name=request.name,
            template_path=request.path,
            pipeline_root=request.pipeline_root,
            parameter_values=dict(request.parameters),
            enable_caching=False if request.no_cache else None,
            project=location.project,
            location=location.region,
        )
        account = request.service_account
        job.submit(service_account=account, create_request_timeout=_REQUEST_TIMEOUT)
        run_id, url = str(job.resource_name), str(job._dashboard_uri())

    def read() -> RunView:
        with _one_sentence_errors(location, "read the run"):
            # `job.state` would set no time limit.
            return _run_view(job.api_client.get_pipeline_job(name=run_id, timeout=_REQUEST_TIMEOUT))

    return StartedRun(run_id, url, read)


def _library() -> Any:
    try:
        from google.cloud import aiplatform
    except ImportError:
        raise ConfigurationError(
            "Vertex AI needs the package google-cloud-aiplatform: run `uv sync --extra vertex`."
        ) from None
    return aiplatform


def _run_view(resource: Any) -> RunView:
    # The job itself is among its tasks, under its own ID.
    job_id = resource.name.rsplit("/", 1)[-1]
    tasks = resource.job_detail.task_details
    views = tuple(_task_view(task) for task in tasks if task.task_name != job_id)
    state = resource.state.name.removeprefix("PIPELINE_STATE_")
    return RunView(_RUN_STATES.get(state, state), views, resource.error.message)


def _task_view(task: Any) -> TaskView:
    state, seconds = _TASK_STATES.get(task.state.name, task.state.name), None
    if state in ("SUCCEEDED", "FAILED", "CANCELED") and task.start_time and task.end_time:
        seconds = (task.end_time - task.start_time).total_seconds()
    return TaskView(task.task_name, state, seconds, task.error.message)


@contextlib.contextmanager
def _one_sentence_errors(location: Location, action: str) -> Iterator[None]:
    """Turn the library's errors into one sentence each, and silence its log."""
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError, TransportError

    service = f"Vertex AI in {location.region}, project {location.project},"
    # For a specification of TFX, the library enables its own log, so a level would not do.
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    except GoogleAPIError as error:
        # A request whose retries ran out of time has no status.
        status = int(getattr(error, "code", None) or 504)
        message = one_line(getattr(error, "message", "") or str(error))
        raise refusal(service, status, action, message, rights=_RIGHTS) from None
    except TransportError as error:
        raise Unreachable(f"{service} could not {action} ({one_line(str(error))}).") from None
    except (GoogleAuthError, OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
        advice = f": {_RIGHTS}" if isinstance(error, GoogleAuthError) else ""
        raise ConfigurationError(
            f"{service} could not {action} ({one_line(str(error))}){advice}."
        ) from None
    finally:
        logging.disable(disabled)

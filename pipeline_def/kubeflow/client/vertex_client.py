"""Starts a run of a compiled specification on Vertex AI Pipelines, and follows it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

from components.contract.errors import UserError
from pipeline_def.kubeflow.client.api_errors import Unreachable, one_line
from pipeline_def.kubeflow.client.run_follower import (
    Parameter,
    RunView,
    StartedRun,
    TaskView,
    follow,
)

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


def start_run(
    spec: str,
    *,
    project: str,
    region: str,
    pipeline_root: str | None,
    parameters: Mapping[str, Parameter],
    display_name: str,
    service_account: str | None,
    cache: bool | None,
    labels: Mapping[str, str] | None = None,
    network: str | None = None,
    timeout: float = 60.0,
) -> StartedRun:
    """Submit the specification as a pipeline job; `timeout` in seconds holds for the request.

    `cache` overrides the setting of every task. The library makes the bucket of the pipeline root
    where it is missing.

    Raises:
        UserError: The library or credentials are missing, or Vertex AI refuses.
    """
    library = _library()
    _check(spec)
    with _sentences(project, region):
        job = library.PipelineJob(
            display_name=display_name,
            template_path=spec,
            pipeline_root=pipeline_root,
            parameter_values=dict(parameters),
            enable_caching=cache,
            labels=dict(labels) if labels else None,
            project=project,
            location=region,
        )
        job.submit(service_account=service_account, network=network, create_request_timeout=timeout)
        return StartedRun(str(job.resource_name), str(job._dashboard_uri()))


def follow_run(
    run_id: str,
    write: Callable[[str], None],
    *,
    project: str,
    region: str,
    see: Callable[[RunView], None] | None = None,
    interval: float = 10.0,
    timeout: float = 60.0,
) -> str:
    """Write each change of a task's state until the job ends; return its last state.

    `run_id` is `StartedRun.run_id`. Vertex AI is asked every `interval` seconds and has `timeout`
    seconds to answer. Ctrl-C stops the following and not the job; the state returned is then not a
    final one. `see` gets every answer.

    Raises:
        UserError: Vertex AI cannot be reached for ten polls, or refuses.
    """
    library = _library()
    with _sentences(project, region):
        job = library.PipelineJob.get(run_id, project=project, location=region)

    def read() -> RunView:
        with _sentences(project, region):
            # Not `job.state`, which sets no time limit.
            view = _run_view(job.api_client.get_pipeline_job(name=run_id, timeout=timeout))
        if see:
            see(view)
        return view

    return follow(read, write, url=str(job._dashboard_uri()), interval=interval)


def _library() -> Any:
    try:
        from google.cloud import aiplatform
    except ImportError:
        raise UserError(
            "Vertex AI needs the package google-cloud-aiplatform: run `uv sync --extra vertex`."
        ) from None
    return aiplatform


def _check(spec: str) -> None:
    try:
        with open(spec, encoding="utf-8") as file:
            documents = list(yaml.safe_load_all(file))
    except OSError as error:
        raise UserError(f"The specification {spec} cannot be read: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise UserError(f"The specification {spec} is not YAML: compile it anew.") from None
    if len(documents) != 1 or not isinstance(documents[0], dict) or "root" not in documents[0]:
        raise UserError(
            f"{spec} is not one pipeline specification (settings of Kubernetes, for one, are of no "
            "use there): compile it for Vertex AI."
        )


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
def _sentences(project: str, region: str) -> Iterator[None]:
    """Turn the library's errors into one sentence each, and keep its log off the terminal."""
    from google.api_core import exceptions as api
    from google.auth import exceptions as auth

    # For a specification of TFX the library turns its own log on, so a level would not do.
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    except auth.GoogleAuthError as error:
        raise _no_credentials(error) from None
    except api.GoogleAPIError as error:
        raise _refusal(error, project, region) from None
    except OSError as error:
        raise UserError(f"Vertex AI: {one_line(str(error))}.") from None
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        raise UserError(f"Vertex AI cannot take this run: {one_line(str(error))}.") from None
    finally:
        logging.disable(disabled)


def _no_credentials(error: Exception) -> UserError:
    from google.auth import exceptions as auth

    if isinstance(error, auth.TransportError):
        return Unreachable("Google's sign-in service cannot be reached: check the network.")
    return UserError(
        "There are no usable Google Cloud credentials: run `gcloud auth application-default "
        "login`, or set GOOGLE_APPLICATION_CREDENTIALS to the file of a service account's key."
    )


def _refusal(error: Any, project: str, region: str) -> UserError:
    from google.api_core import exceptions as api

    why = one_line(getattr(error, "message", "") or str(error))
    where = f"Vertex AI in {region}, project {project}"
    if isinstance(error, api.Unauthenticated):
        return UserError(f"{where}, did not accept the credentials (401): {why}.")
    if isinstance(error, api.PermissionDenied | api.Forbidden):
        return UserError(
            f"{where}, forbids it (403): {why}; the caller needs the role Vertex AI User and must "
            "be allowed to act as the service account."
        )
    if isinstance(error, api.DeadlineExceeded | api.RetryError):
        return Unreachable(f"{where}, did not answer in time: {why}.")
    if isinstance(error, api.ServerError | api.TooManyRequests):
        return Unreachable(f"{where}, could not answer: {why}.")
    return UserError(f"{where}, refused: {why}.")

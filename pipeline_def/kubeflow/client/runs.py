"""Upload specifications, and start, list, read and stop runs, on open-source Kubeflow Pipelines."""

import contextlib
import dataclasses
import datetime
import hashlib
import json
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from components.contract.configuration import require
from components.contract.error_messages import did_you_mean
from components.contract.errors import ConfigurationError, ServiceError
from pipeline_def.kubeflow.client.api import Api
from pipeline_def.kubeflow.client.follow import RUN_ENDS, RunView, read_state, read_view
from pipeline_def.kubeflow.specification import Specification, pod_of, steps_of
from pipeline_def.kubeflow.step_interface import DEFAULT_ROOT, PRIVATE_ROOT, find_reason, kept_log
from pipeline_def.service_errors import one_line

_MOST_SEARCHED = 200

Parameter = str | int | float | bool
"""Value of a run parameter."""

Row = dict[str, Any]
"""A run as the API describes it."""


@dataclass(frozen=True)
class RunRequest:
    """A run to start."""

    documents: list[Any]
    """The specification and, if there is one, the platform's document."""
    name: str
    parameters: Mapping[str, Parameter]
    service_account: str | None = None
    experiment: str = ""
    """Created if missing."""


def start_run(api: Api, request: RunRequest) -> str:
    """Upload the specification as a new version of its pipeline; start a run and return its ID."""
    body = prepare_run(api, request)
    return api.create("run_id", "RunServiceApi", "run_service_create_run", "start a run", body)


def prepare_run(api: Api, request: RunRequest) -> dict[str, Any]:
    """Upload the specification and return the fields that a run or a schedule of it has."""
    # First: without a namespace an API with several users refuses it, but takes the pipeline, which
    # everybody would then see.
    experiment_id = _find_or_create(api, "experiment", request.experiment)
    pipeline = request.documents[0]["pipelineInfo"]["name"]
    pipeline_id = _find_or_create(api, "pipeline", pipeline)
    text = str(yaml.safe_dump_all(request.documents, sort_keys=False))
    version_id = _upload(api, pipeline_id, text)
    return {
        "display_name": request.name,
        "experiment_id": experiment_id,
        "pipeline_version_reference": {
            "pipeline_id": pipeline_id,
            "pipeline_version_id": version_id,
        },
        "runtime_config": {"parameters": dict(request.parameters)},
        **_present(service_account=request.service_account),
    }


def find_experiment(api: Api, name: str) -> str:
    """Return the ID of an experiment; raise `ConfigurationError` if it does not exist."""
    if experiment_id := _find(api, "experiment", name):
        return experiment_id
    raise ConfigurationError(
        f"There is no experiment {name} at {api.address}: choose another --experiment."
    )


def _present(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _find(api: Api, kind: str, name: str) -> str | None:
    """Return the ID of the pipeline or experiment with this name."""
    predicate = {"operation": "EQUALS", "key": "display_name", "stringValue": name}
    # The server decodes the query, and then the filter once more.
    chosen = quote(json.dumps({"predicates": [predicate]}))
    service, method = f"{kind.title()}ServiceApi", f"{kind}_service_list_{kind}s"
    space = _present(namespace=api.namespace)
    listed = api.call(service, method, f"list {kind}s", filter=chosen, **space)
    return next((str(row[f"{kind}_id"]) for row in listed.get(f"{kind}s") or []), None)


def _find_or_create(api: Api, kind: str, name: str) -> str:
    """Return the ID of a pipeline or experiment.

    An upload could create the pipeline too, but would name its first version like the pipeline.
    """
    if existing_id := _find(api, kind, name):
        return existing_id
    service, method = f"{kind.title()}ServiceApi", f"{kind}_service_create_{kind}"
    body = {"display_name": name, **_present(namespace=api.namespace)}
    return api.create(f"{kind}_id", service, method, f"create the {kind} {name}", body)


def _upload(api: Api, pipeline_id: str, text: str) -> str:
    """Upload a version, named by time and content."""
    now = datetime.datetime.now(datetime.UTC)
    version = f"{now:%Y%m%d-%H%M%S-%f}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pipeline.yaml")
        path.write_text(text, encoding="utf-8")
        return api.create(
            "pipeline_version_id",
            "PipelineUploadServiceApi",
            "upload_pipeline_version",
            f"upload the specification as version {version}",
            str(path),
            name=version,
            pipelineid=pipeline_id,
        )


def read_run(api: Api, run_id: str, tasks: Collection[str]) -> RunView:
    """Read the state of a run; if it failed, with the reason from the log of the failed task."""
    run = api.call("RunServiceApi", "run_service_get_run", f"read the run {run_id}", run_id)
    view = read_view(run, tasks)
    task = view.failed_task() if view.state in RUN_ENDS else None
    if task is None or task.error:
        return view
    # The state of the run is known without the log.
    with contextlib.suppress(ServiceError, ConfigurationError):
        reason = find_reason(read_log(api, run, task.name), task.name)
        return dataclasses.replace(view, error=reason or view.error)
    return view


def list_runs(api: Api, experiment: str, most: int) -> list[Row]:
    """Return the latest runs of an experiment, newest first."""
    query = {
        "experiment_id": find_experiment(api, experiment),
        "page_size": most,
        "sort_by": "created_at desc",
    }
    listed = api.call("RunServiceApi", "run_service_list_runs", "list runs", **query)
    return [run | {"state": read_state(run)} for run in listed.get("runs") or []]


def find_run(api: Api, experiment: str, wanted: str | None) -> Row:
    """Return the one run with this name, ID or beginning of an ID; None: the newest run."""
    runs = list_runs(api, experiment, 1 if wanted is None else _MOST_SEARCHED)
    if wanted is None:
        require(bool(runs), f"The experiment {experiment} has no runs.")
        return runs[0]
    matching = [
        run for run in runs if run.get("display_name") == wanted or run["run_id"].startswith(wanted)
    ]
    if len(matching) != 1:
        count = f"are {len(matching)} runs" if matching else "is no run"
        raise ConfigurationError(
            f"There {count} {wanted} among the latest {len(runs)} of the experiment {experiment}: "
            "use an ID from `kfp_runner.py runs`."
        )
    return matching[0]


def stop_run(api: Api, run_id: str) -> None:
    """Stop a run; its pods end, and its state becomes CANCELED."""
    api.call("RunServiceApi", "run_service_terminate_run", f"stop the run {run_id}", run_id)


def read_log(api: Api, run: Row, step: str) -> str:
    """Return the log that the task of a step keeps in the object store, as KFP's interface does."""
    task, reasons = pod_of(step), []
    for url in _log_urls(api, run, task):
        scheme, _, path = url.partition("://")
        bucket, _, key = path.partition("/")
        query = {"source": {"gs": "gcs"}.get(scheme, scheme), "bucket": bucket, "key": key}
        try:
            action = f"read the log of {task}"
            return api.text("/artifacts/get", action, **query, **_present(namespace=api.namespace))
        except ServiceError as error:
            reasons.append(f"{url}: {one_line(str(error))}")
    raise ServiceError(
        f"There is no log of {task}: its step was cached, has not begun, or could not reach the "
        f"store ({'; '.join(reasons)}). Its pod, while it exists, may tell more: `kubectl "
        f"--namespace {api.namespace or 'kubeflow'} logs --prefix --selector "
        f"pipeline/runid={run['run_id']}`."
    )


def _log_urls(api: Api, run: Row, task: str) -> list[str]:
    """Return where a task may keep its log: below the pipeline root, which the API does not tell.

    Each namespace of a cluster with several users has a default of its own.
    """
    action = "read the pipeline of the run"
    reference = run.get("pipeline_version_reference") or {}
    ids = (str(reference.get(f"pipeline_{key}id")) for key in ("", "version_"))
    version = api.call("PipelineServiceApi", "pipeline_service_get_pipeline_version", action, *ids)
    stored = version.get("pipeline_spec") or {}
    # With a platform document the specification is one level deeper.
    spec = stored.get("pipeline_spec") or stored
    known = Specification(spec).tasks
    if known and task not in known:
        run_steps = {step for name in known for step in steps_of(name)} | {*known}
        hint = did_you_mean(task, run_steps) or f" It has {', '.join(known)}."
        raise ConfigurationError(f"The run {run['run_id']} has no task {task}.{hint}")
    defaults = [PRIVATE_ROOT.format(api.namespace)] if api.namespace else []
    root = (run.get("runtime_config") or {}).get("pipeline_root") or spec.get("defaultPipelineRoot")
    roots = [str(root).rstrip("/")] if root else [*defaults, DEFAULT_ROOT]
    name = (spec.get("pipelineInfo") or {}).get("name")
    return [kept_log(f"{place}/{name}/{run['run_id']}", task) for place in roots]

"""Starts a run of a compiled specification on open-source Kubeflow Pipelines, and follows it."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import datetime
import functools
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from components.contract.errors import ConfigurationError, ServiceError
from pipeline_def.kubeflow.client.api import Api
from pipeline_def.kubeflow.client.connection import Connection
from pipeline_def.kubeflow.client.run import RunRequest, RunView, StartedRun
from pipeline_def.kubeflow.client.run_follower import RUN_ENDS, failed_task, follow, ignore
from pipeline_def.kubeflow.client.task_log import find_sentence, read_log
from pipeline_def.kubeflow.client.workflow_tasks import run_view

# The SDK's variable for a UI that has another address than the API.
_UI_VARIABLE = "KF_PIPELINES_UI_ENDPOINT"


def start_run(
    connection: Connection, request: RunRequest, *, experiment: str, version: str | None = None
) -> StartedRun:
    """Upload the specification as a new version of its pipeline and start a run of this version.

    The pipeline and the experiment are made where they are missing. Without `version` the version
    is named by the time (UTC) and the digest of what is uploaded. The cache is overridden in what
    is uploaded, because the API has no such setting for a run of a version.

    Raises:
        UserError: The API cannot be reached or refuses, or the version exists already.
    """
    pipeline = request.documents[0]["pipelineInfo"]["name"]
    with Api(connection) as api:
        reference, name = _version(api, pipeline, version, _uploaded(request))
        config = _present(parameters=dict(request.parameters), pipeline_root=request.pipeline_root)
        body = {
            "display_name": request.name,
            "experiment_id": _found_or_made(api, "experiment", experiment),
            "pipeline_version_reference": reference,
            "runtime_config": config,
            **_present(service_account=request.service_account),
        }
        run = api.call("RunServiceApi", "run_service_create_run", "start a run", body=body)
        run_id = _field(run, "run_id", api)
    return StartedRun(run_id, run_url(connection, run_id), name)


def run_url(connection: Connection, run_id: str) -> str:
    """Return the address of the run's page, as the SDK builds it."""
    base = os.environ.get(_UI_VARIABLE, "").rstrip("/") or connection.address()
    return f"{base}/#/runs/details/{run_id}"


def follow_run(
    connection: Connection,
    run_id: str,
    write: Callable[[str], None],
    *,
    see: Callable[[RunView], None] = ignore,
    interval: float = 10.0,
) -> str:
    """Follow a run as `run_follower.follow` does; a task that failed tells its own sentence."""
    url, hint = run_url(connection, run_id), _pending_hint(connection, run_id)
    with Api(connection) as api:
        read = functools.partial(read_run, api, run_id)
        return follow(read, write, url=url, interval=interval, see=see, hint=hint)


def read_run(api: Api, run_id: str) -> RunView:
    """Read a run; where it has failed, with the reason from the log of the task to blame."""
    run = api.call("RunServiceApi", "run_service_get_run", f"read the run {run_id}", run_id)
    view = run_view(run)
    task = failed_task(view) if view.state in RUN_ENDS else None
    if task is None or task.error or not task.node:
        return view
    # The log is a kindness: without it the run has failed all the same.
    with contextlib.suppress(ServiceError):
        log = read_log(api, {"run_id": run_id, **run}, task.node)
        told = dataclasses.replace(task, error=find_sentence(log, task.name))
        tasks = tuple(told if one is task else one for one in view.tasks)
        return dataclasses.replace(view, tasks=tasks)
    return view


def _pending_hint(connection: Connection, run_id: str) -> str:
    namespace = connection.namespace or "kubeflow"
    pods = f"kubectl --namespace {namespace} describe pods --selector pipeline/runid={run_id}"
    return (
        "its pod may wait for its image (a wrong name, or a registry that wants credentials), for "
        f"a secret, a volume, or a node with room for it; `{pods}` tells."
    )


def _uploaded(request: RunRequest) -> str:
    """Return the specification as it is uploaded: the file, unless the cache is overridden."""
    if request.cache is None:
        return Path(request.path).read_text(encoding="utf-8")
    documents = copy.deepcopy(request.documents)
    for component in [documents[0]["root"], *documents[0].get("components", {}).values()]:
        for task in component.get("dag", {}).get("tasks", {}).values():
            task["cachingOptions"] = {"enableCache": request.cache}
    return str(yaml.safe_dump_all(documents, sort_keys=False))


def _version_name(text: str) -> str:
    now = datetime.datetime.now(datetime.UTC)
    return f"{now:%Y%m%d-%H%M%S}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _present(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _field(answer: dict[str, Any], name: str, api: Api) -> str:
    value = answer.get(name)
    if not value:
        raise ServiceError(f"{api.address} answers without {name}: it has no v2 API of Kubeflow.")
    return str(value)


def _found(api: Api, kind: str, name: str, *parents: str, **space: str) -> list[str]:
    """Return the identifiers of the pipelines, experiments or pipeline versions of this name."""
    service = "experiment" if kind == "experiment" else "pipeline"
    predicate = {"operation": "EQUALS", "key": "display_name", "stringValue": name}
    # The server decodes the query, and then the filter once more.
    chosen = quote(json.dumps({"predicates": [predicate]}))
    method, action = f"{service}_service_list_{kind}s", f"list {kind.replace('_', ' ')}s"
    service = f"{service.title()}ServiceApi"
    listed = api.call(service, method, action, *parents, filter=chosen, **space)
    return [_field(one, f"{kind}_id", api) for one in listed.get(f"{kind}s") or []]


def _found_or_made(api: Api, kind: str, name: str) -> str:
    """Return the identifier of the pipeline or experiment `name`, a new one where there is none.

    A pipeline is not made by an upload, which would name the first version like the pipeline.
    """
    space = _present(namespace=api.connection.namespace)
    found = _found(api, kind, name, **space)
    if kind == "pipeline" and len(found) > 1:
        raise ConfigurationError(
            f"There are {len(found)} pipelines named {name}: take another name."
        )
    if found:
        return found[0]
    service, method = f"{kind.title()}ServiceApi", f"{kind}_service_create_{kind}"
    body = {"display_name": name, **space}
    made = api.call(service, method, f"make the {kind} {name}", body=body)
    return _field(made, f"{kind}_id", api)


def _version(api: Api, pipeline: str, version: str | None, text: str) -> tuple[dict[str, str], str]:
    """Return the reference to the stored version, and its name."""
    name = version or _version_name(text)
    pipeline_id = _found_or_made(api, "pipeline", pipeline)
    found = _found(api, "pipeline_version", name, pipeline_id)
    if found and version:
        raise ConfigurationError(
            f"The pipeline {pipeline} already has a version {version}: give another "
            "--pipeline-version, or none to have it named by time and content."
        )
    version_id = found[0] if found else _upload(api, pipeline_id, name, text)
    return {"pipeline_id": pipeline_id, "pipeline_version_id": version_id}, name


def _upload(api: Api, pipeline_id: str, version: str, text: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pipeline.yaml")
        path.write_text(text, encoding="utf-8")
        made = api.call(
            "PipelineUploadServiceApi",
            "upload_pipeline_version",
            f"store the specification as version {version}",
            str(path),
            name=version,
            pipelineid=pipeline_id,
        )
    return _field(made, "pipeline_version_id", api)

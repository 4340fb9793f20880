"""Starts a run of a compiled specification on open-source Kubeflow Pipelines, and follows it."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import yaml

from components.contract.errors import UserError
from pipeline_def.kubeflow.client.api_connection import Api, Connection
from pipeline_def.kubeflow.client.run_follower import Parameter, RunView, StartedRun, follow
from pipeline_def.kubeflow.client.workflow_tasks import run_view

__all__ = ["Connection", "StartedRun", "follow_run", "start_run"]

# The SDK's variable for a UI that has another address than the API.
_UI_VARIABLE = "KF_PIPELINES_UI_ENDPOINT"


def start_run(
    connection: Connection,
    spec: str,
    *,
    pipeline: str,
    version: str | None,
    run_name: str,
    experiment: str,
    parameters: Mapping[str, Parameter],
    pipeline_root: str | None,
    cache: bool | None,
    service_account: str | None,
) -> StartedRun:
    """Upload the specification as a new version of the pipeline and start a run of this version.

    The pipeline and the experiment are made where they are missing. Without `version` the version
    is named by the time (UTC) and the digest of what is uploaded. `cache` overrides the setting of
    every task: in what is uploaded, because the API has no such setting for a run of a version.

    Raises:
        UserError: The file cannot be used, or the API cannot be reached or refuses.
    """
    text = _specification(spec, cache)
    with Api(connection) as api:
        reference, name = _version(api, pipeline, version, text)
        body = {
            "display_name": run_name,
            "experiment_id": _found_or_made(api, "experiment", experiment),
            "pipeline_version_reference": reference,
            "runtime_config": _present(parameters=dict(parameters), pipeline_root=pipeline_root),
        } | _present(service_account=service_account)
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
    see: Callable[[RunView], None] | None = None,
    interval: float = 10.0,
) -> str:
    """Write each change of a task's state until the run ends; return the run's last state.

    The API is asked every `interval` seconds. Ctrl-C stops the following and not the run; the
    state returned is then not a final one. `see` gets every answer.

    Raises:
        UserError: The API cannot be reached for ten polls, or refuses.
    """
    with Api(connection) as api:

        def read() -> RunView:
            found = api.call(
                "RunServiceApi", "run_service_get_run", f"read the run {run_id}", run_id
            )
            view = run_view(found)
            if see:
                see(view)
            return view

        return follow(read, write, url=run_url(connection, run_id), interval=interval)


def _specification(path: str, cache: bool | None) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        documents = list(yaml.safe_load_all(text))
    except OSError as error:
        raise UserError(f"The specification {path} cannot be read: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise UserError(f"The specification {path} is not YAML: compile it anew.") from None
    if not documents or not isinstance(documents[0], dict) or "root" not in documents[0]:
        raise UserError(f"{path} is not a compiled pipeline specification: compile it anew.")
    if cache is None:
        return text
    for component in [documents[0]["root"], *documents[0].get("components", {}).values()]:
        for task in component.get("dag", {}).get("tasks", {}).values():
            task["cachingOptions"] = {"enableCache": cache}
    return str(yaml.safe_dump_all(documents, sort_keys=False))


def _version_name(text: str) -> str:
    now = datetime.datetime.now(datetime.UTC)
    return f"{now:%Y%m%d-%H%M%S}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _present(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _named(name: str) -> str:
    predicate = {"operation": "EQUALS", "key": "display_name", "stringValue": name}
    # The server decodes the query, and then the filter once more.
    return quote(json.dumps({"predicates": [predicate]}))


def _field(answer: dict[str, Any], name: str, api: Api) -> str:
    value = answer.get(name)
    if not value:
        raise UserError(f"{api.address} answers without {name}: it has no v2 API of Kubeflow.")
    return str(value)


def _found_or_made(api: Api, kind: str, name: str) -> str:
    """Return the identifier of the pipeline or experiment `name`, a new one where there is none.

    A pipeline is not made by an upload, which would name the first version like the pipeline.
    """
    service, calls = f"{kind.title()}ServiceApi", f"{kind}_service"
    space = _present(namespace=api.connection.namespace)
    listed = api.call(
        service, f"{calls}_list_{kind}s", f"list {kind}s", filter=_named(name), **space
    )
    found = listed.get(f"{kind}s") or []
    if kind == "pipeline" and len(found) > 1:
        raise UserError(f"There are {len(found)} pipelines named {name}: take another name.")
    body = {"display_name": name} | space
    one = (
        found[0]
        if found
        else api.call(service, f"{calls}_create_{kind}", f"make the {kind} {name}", body=body)
    )
    return _field(one, f"{kind}_id", api)


def _version(api: Api, pipeline: str, version: str | None, text: str) -> tuple[dict[str, str], str]:
    """Return the reference to the stored version, and its name."""
    name = version or _version_name(text)
    pipeline_id = _found_or_made(api, "pipeline", pipeline)
    version_id = _stored(api, pipeline_id, name)
    if version_id and version:
        raise UserError(
            f"The pipeline {pipeline} already has a version {version}: give another "
            "--pipeline-version, or none to have it named by time and content."
        )
    version_id = version_id or _upload(api, pipeline_id, name, text)
    return {"pipeline_id": pipeline_id, "pipeline_version_id": version_id}, name


def _stored(api: Api, pipeline_id: str, version: str) -> str | None:
    listed = api.call(
        "PipelineServiceApi",
        "pipeline_service_list_pipeline_versions",
        "list pipeline versions",
        pipeline_id,
        filter=_named(version),
    )
    found = listed.get("pipeline_versions") or []
    return _field(found[0], "pipeline_version_id", api) if found else None


def _upload(api: Api, pipeline_id: str, version: str, text: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "pipeline.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        made = api.call(
            "PipelineUploadServiceApi",
            "upload_pipeline_version",
            f"store the specification as version {version}",
            path,
            name=version,
            pipelineid=pipeline_id,
        )
    return _field(made, "pipeline_version_id", api)

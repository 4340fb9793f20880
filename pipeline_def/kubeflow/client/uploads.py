"""What a run needs on the server: its experiment, and a version of its pipeline."""

from __future__ import annotations

import copy
import datetime
import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from components.contract.errors import ConfigurationError, ServiceError
from pipeline_def.kubeflow.client.api import Api
from pipeline_def.kubeflow.client.run import RunRequest


def request_body(
    api: Api, request: RunRequest, *, experiment: str, version: str | None
) -> tuple[dict[str, Any], str]:
    """Return what a run or a schedule is made of, and the name of the version that it runs.

    The specification is uploaded, and pipeline and experiment are made where they are missing.
    Without `version` the version is named by the time (UTC) and the digest of what is uploaded. The
    cache is overridden in what is uploaded, because the API has no such setting for a run of a
    version.
    """
    # First, because without a namespace it is refused where there are several users, after which
    # the pipeline would be there for all of them.
    experiment_id = _found_or_made(api, "experiment", experiment)
    pipeline = request.documents[0]["pipelineInfo"]["name"]
    reference, name = _version(api, pipeline, version, _uploaded(request))
    config = _present(parameters=dict(request.parameters), pipeline_root=request.pipeline_root)
    body = {
        "display_name": request.name,
        "experiment_id": experiment_id,
        "pipeline_version_reference": reference,
        "runtime_config": config,
        **_present(service_account=request.service_account),
    }
    return body, name


def find_experiment(api: Api, name: str) -> str:
    """Return the identifier of an experiment.

    Raises:
        ConfigurationError: there is none of this name.
    """
    found = _found(api, "experiment", name, **_present(namespace=api.connection.namespace))
    if not found:
        raise ConfigurationError(
            f"There is no experiment {name} at {api.address}: name another with --experiment."
        )
    return found[0]


def field_of(answer: dict[str, Any], name: str, api: Api) -> str:
    """Return a field that every answer of the API has.

    Raises:
        ServiceError: this one has not.
    """
    value = answer.get(name)
    if not value:
        raise ServiceError(f"{api.address} answers without {name}: it has no v2 API of Kubeflow.")
    return str(value)


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


def _found(api: Api, kind: str, name: str, *parents: str, **space: str) -> list[str]:
    """Return the identifiers of the pipelines, experiments or pipeline versions of this name."""
    service = "experiment" if kind == "experiment" else "pipeline"
    predicate = {"operation": "EQUALS", "key": "display_name", "stringValue": name}
    # The server decodes the query, and then the filter once more.
    chosen = quote(json.dumps({"predicates": [predicate]}))
    method, action = f"{service}_service_list_{kind}s", f"list {kind.replace('_', ' ')}s"
    service = f"{service.title()}ServiceApi"
    listed = api.call(service, method, action, *parents, filter=chosen, **space)
    return [field_of(one, f"{kind}_id", api) for one in listed.get(f"{kind}s") or []]


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
    made = api.call(service, method, f"make the {kind} {name}", body)
    return field_of(made, f"{kind}_id", api)


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
    return field_of(made, "pipeline_version_id", api)

"""Upload a specification as a new version of its pipeline, and prepare a run of it."""

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

from components.contract.errors import ConfigurationError
from pipeline_def.kubeflow.client.api import Api
from pipeline_def.kubeflow.client.run import RunRequest


def prepare_run(
    api: Api, request: RunRequest, *, experiment: str, version: str | None
) -> dict[str, Any]:
    """Upload the specification and return the fields that a run or a schedule of it has.

    Pipeline and experiment are created if missing. Without `version`, the version is named by the
    time (UTC) and the digest of the upload; a given version must be new.
    """
    # First: without a namespace an API with several users refuses it, but takes the pipeline, which
    # everybody would then see.
    experiment_id = _find_or_create(api, "experiment", experiment)
    pipeline = request.documents[0]["pipelineInfo"]["name"]
    pipeline_id = _find_or_create(api, "pipeline", pipeline)
    text = _uploaded_text(request)
    version_id = _upload(api, pipeline_id, version or _version_name(text), text)
    config = _present(parameters=dict(request.parameters), pipeline_root=request.pipeline_root)
    return {
        "display_name": request.name,
        "experiment_id": experiment_id,
        "pipeline_version_reference": {
            "pipeline_id": pipeline_id,
            "pipeline_version_id": version_id,
        },
        "runtime_config": config,
        **_present(service_account=request.service_account),
    }


def find_experiment(api: Api, name: str) -> str:
    """Return the ID of an experiment; raise `ConfigurationError` if it does not exist."""
    if found := _find(api, "experiment", name):
        return found
    raise ConfigurationError(
        f"There is no experiment {name} at {api.address}: choose another --experiment."
    )


def _uploaded_text(request: RunRequest) -> str:
    """Return the file, or the specification without caching: a run has no such setting."""
    if not request.no_cache:
        return Path(request.path).read_text(encoding="utf-8")
    documents = copy.deepcopy(request.documents)
    for component in [documents[0]["root"], *documents[0].get("components", {}).values()]:
        for task in component.get("dag", {}).get("tasks", {}).values():
            task["cachingOptions"] = {"enableCache": False}
    return str(yaml.safe_dump_all(documents, sort_keys=False))


def _version_name(text: str) -> str:
    now = datetime.datetime.now(datetime.UTC)
    return f"{now:%Y%m%d-%H%M%S-%f}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _present(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _find(api: Api, kind: str, name: str) -> str | None:
    """Return the ID of the pipeline or experiment with this name."""
    predicate = {"operation": "EQUALS", "key": "display_name", "stringValue": name}
    # The server decodes the query, and then the filter once more.
    chosen = quote(json.dumps({"predicates": [predicate]}))
    service, method = f"{kind.title()}ServiceApi", f"{kind}_service_list_{kind}s"
    space = _present(namespace=api.connection.namespace)
    listed = api.call(service, method, f"list {kind}s", filter=chosen, **space)
    return next((str(one[f"{kind}_id"]) for one in listed.get(f"{kind}s") or []), None)


def _find_or_create(api: Api, kind: str, name: str) -> str:
    """Return the ID of a pipeline or experiment.

    An upload could create the pipeline too, but would name its first version like the pipeline.
    """
    if found := _find(api, kind, name):
        return found
    service, method = f"{kind.title()}ServiceApi", f"{kind}_service_create_{kind}"
    body = {"display_name": name, **_present(namespace=api.connection.namespace)}
    created = api.call(service, method, f"create the {kind} {name}", body)
    return str(created[f"{kind}_id"])


def _upload(api: Api, pipeline_id: str, version: str, text: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pipeline.yaml")
        path.write_text(text, encoding="utf-8")
        created = api.call(
            "PipelineUploadServiceApi",
            "upload_pipeline_version",
            f"upload the specification as version {version}",
            str(path),
            name=version,
            pipelineid=pipeline_id,
        )
    return str(created["pipeline_version_id"])

"""A pushed model in Kubeflow's model registry (Hub).

Source: api/openapi/model-registry.yaml of kubeflow/model-registry, v1alpha3.
"""

from typing import Any

from pipeline_def.tracking.facts import TrackedRun
from pipeline_def.tracking.service import Refused, Service

_API = "api/model_registry/v1alpha3"


def send(run: TrackedRun, service: Service) -> str:
    """Register the model that a run pushed, with its version; return the address of the version.

    A version is named by the push, so that nothing is registered twice. Without a push there is
    nothing to send.

    Raises:
        ServiceError: the registry refused it, or did not respond.
    """
    record = run.record
    if record.pushed is None:
        return service.url
    model = _find_or_create(service, "registered_model", {"name": record.pipeline})
    version = {
        "name": record.pushed.version,
        "registeredModelId": model,
        "description": record.headline,
        "author": record.host,
        "customProperties": _properties(run),
    }
    version_id = _find_or_create(service, "model_version", version, parent=model)
    artifact = {
        "artifactType": "model-artifact",
        "name": f"{record.pipeline}-{record.pushed.version}",
        "uri": record.pushed.destination,
        "modelFormatName": "tensorflow",
        "modelFormatVersion": record.versions.get("tensorflow", "").partition(".")[0],
        "modelSourceKind": "pipelines",
        "modelSourceName": record.pipeline,
        "modelSourceId": record.id,
    }
    path = f"{_API}/model_versions/{version_id}/artifacts"
    # With the ID of an artifact this path updates it; without one, names are unique.
    if not service.get(path, "list the version's artifacts").get("items"):
        service.post(path, "register the model's place", artifact)
    return f"{service.url}/{_API}/model_versions/{version_id}"


def _find_or_create(
    service: Service, kind: str, body: dict[str, Any], *, parent: str | None = None
) -> str:
    """Return the ID of a model or version, which is created if needed."""
    query = {"name": body["name"], **({"parentResourceId": parent} if parent else {})}
    words = kind.replace("_", " ")
    try:
        found = service.get(f"{_API}/{kind}", f"look for the {words}", **query)
    except Refused as error:
        if error.code != "404" and "404" not in str(error):
            raise
        found = service.post(f"{_API}/{kind}s", f"create the {words}", body)
    return str(found["id"])


def _properties(run: TrackedRun) -> dict[str, Any]:
    texts = {
        name: {"string_value": value, "metadataType": "MetadataStringValue"}
        for name, value in run.tags.items()
    }
    numbers = {
        f"{run.record.split}_{name}": {"double_value": value, "metadataType": "MetadataDoubleValue"}
        for name, value in run.record.metrics.items()
        if value is not None
    }
    return texts | numbers

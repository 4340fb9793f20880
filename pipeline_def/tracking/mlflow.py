"""A run in MLflow: parameters, metrics, tags, files, and a version of its registered model.

Source: the REST API of MLflow 3, https://mlflow.org/docs/latest/rest-api.html. Whatever is there
already is not sent again: a run is found by its tag, a model's version by that of the push.
"""

import itertools
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from components.contract.errors import ServiceError
from pipeline_def.steps import TRAINER
from pipeline_def.tracking.facts import TrackedRun, list_model_files, milliseconds
from pipeline_def.tracking.service import Refused, Service

_API = "api/2.0/mlflow"
_ARTIFACTS = "mlflow-artifacts:/"
# Limits of one request, and of one value.
_MOST_METRICS, _MOST_PARAMETERS, _LONGEST_VALUE = 1000, 100, 6000
_STATES = {"done": "FINISHED", "failed": "FAILED", "stopped": "KILLED", "running": "RUNNING"}
_EXISTS = "RESOURCE_ALREADY_EXISTS"

# Of `serving_default`, as in pipeline_def/serving/signatures.py.
_SIGNATURE = {
    "inputs": [{"name": "image_bytes", "type": "binary", "required": True}],
    "outputs": [
        {"name": "label", "type": "string", "required": True},
        {"name": "probabilities", "type": "array", "items": {"type": "float"}, "required": True},
        {"name": "labels", "type": "array", "items": {"type": "string"}, "required": True},
        {"name": "error", "type": "string", "required": True},
    ],
}


def send(run: TrackedRun, service: Service, *, experiment: str) -> str:
    """Send a run, or complete it if it is there; return the address of its page.

    Raises:
        ServiceError: MLflow refused it, or did not respond.
    """
    record = run.record
    experiment_id = _find_experiment(service, experiment)
    info = _find_or_create_run(service, run, experiment_id)
    run_id = info["run_id"]
    for batch in _batches(run):
        service.post(f"{_API}/runs/log-batch", "log the run", {"run_id": run_id, **batch})
    ended = {} if record.ended is None else {"end_time": milliseconds(record.ended)}
    body = {"run_id": run_id, "status": _STATES[record.state], **ended}
    service.post(f"{_API}/runs/update", "update the run", body)
    root = str(info.get("artifact_uri", ""))
    if not root.startswith(_ARTIFACTS):
        raise ServiceError(
            f"{service.url} has the run without its files, as it does not take them itself: start "
            "it with --serve-artifacts."
        )
    for name, path in run.files.items():
        service.put_file(_place(root, name), path, f"store {name}")
    if record.pushed:
        _register(service, run, run_id, root)
    return f"{service.url}/#/experiments/{experiment_id}/runs/{run_id}"


def _find_experiment(service: Service, name: str) -> str:
    """Return the ID of an experiment, which is created if needed."""
    find = f"{_API}/experiments/get-by-name"
    action = f"find the experiment {name}"
    try:
        found = service.get(find, action, experiment_name=name)["experiment"]
    except Refused as error:
        if error.code != "RESOURCE_DOES_NOT_EXIST":
            raise
        try:
            made = service.post(f"{_API}/experiments/create", f"create {name}", {"name": name})
            return str(made["experiment_id"])
        except Refused as race:
            if race.code != _EXISTS:
                raise
            found = service.get(find, action, experiment_name=name)["experiment"]
    except KeyError:
        raise ServiceError(f"{service.url} is not MLflow: check tracking.mlflow.") from None
    if found.get("lifecycle_stage") == "deleted":
        raise ServiceError(
            f"The experiment {name} of {service.url} was deleted: restore it there, or set "
            "tracking.experiment."
        )
    return str(found["experiment_id"])


def _find_or_create_run(service: Service, run: TrackedRun, experiment_id: str) -> dict[str, Any]:
    record = run.record
    chosen = f"tags.pipeline_run = '{record.id}'"
    body = {"experiment_ids": [experiment_id], "filter": chosen, "max_results": 1}
    found = service.post(f"{_API}/runs/search", "look for the run", body).get("runs")
    if not found:
        new = {
            "experiment_id": experiment_id,
            "run_name": f"{record.pipeline} {record.id[:19]}",
            "start_time": milliseconds(record.started),
            "tags": _pairs({"pipeline_run": record.id}),
        }
        found = [service.post(f"{_API}/runs/create", "create a run", new)["run"]]
    return dict(found[0]["info"])


def _batches(run: TrackedRun) -> Iterator[dict[str, Any]]:
    """Yield tags, parameters and metrics in requests that MLflow takes."""
    note = {"mlflow.note.content": run.record.headline or run.record.error}
    yield {"tags": _pairs({**run.tags, **note})}
    parameters = _pairs(run.parameters)
    for start in range(0, len(parameters), _MOST_PARAMETERS):
        yield {"params": parameters[start : start + _MOST_PARAMETERS]}
    metrics = list(_list_metrics(run))
    for start in range(0, len(metrics), _MOST_METRICS):
        yield {"metrics": metrics[start : start + _MOST_METRICS]}


def _list_metrics(run: TrackedRun) -> Iterator[dict[str, Any]]:
    """Yield the metrics; the same ones each time, as MLflow keeps two that differ in time."""
    record = run.record
    trainer = record.steps.get(TRAINER.id)
    time = milliseconds(trainer.started if trainer and trainer.started else record.started)
    final = {f"{record.split}_{name}": [value] for name, value in record.metrics.items()}
    for name, values in itertools.chain(run.epochs.items(), final.items()):
        for step, value in enumerate(values):
            # JSON has no infinities.
            if isinstance(value, int | float) and math.isfinite(value):
                yield {"key": name, "value": value, "timestamp": time, "step": step}


def _register(service: Service, run: TrackedRun, run_id: str, root: str) -> None:
    """Upload the pushed model with its signature, and register it as a version."""
    record = run.record
    assert record.pushed
    chosen = f"name='{record.pipeline}' and tags.pushed_version='{record.pushed.version}'"
    path, action = f"{_API}/model-versions/search", "look for the model's version"
    if service.get(path, action, filter=chosen).get("model_versions"):
        return
    for name, file in list_model_files(run).items():
        service.put_file(_place(root, "model/tf2model", name), file, f"store {name}")
    description = yaml.safe_dump(_describe_model(run, run_id)).encode()
    service.put(_place(root, "model/MLmodel"), description, "store MLmodel")
    try:
        body = {"name": record.pipeline}
        service.post(f"{_API}/registered-models/create", "register the model", body)
    except Refused as error:
        if error.code != _EXISTS:
            raise
    version = {
        "name": record.pipeline,
        "source": f"{root}/model",
        "run_id": run_id,
        "description": record.headline,
        "tags": _pairs(run.tags),
    }
    service.post(f"{_API}/model-versions/create", "register the model's version", version)


def _describe_model(run: TrackedRun, run_id: str) -> dict[str, Any]:
    """Return the file MLmodel, with which `mlflow.tensorflow.load_model` finds the model."""
    flavor = {"code": "", "model_type": "tf2-module", "saved_model_dir": "tf2model"}
    return {
        "artifact_path": "model",
        "run_id": run_id,
        "utc_time_created": (run.record.ended or run.record.started)[:19].replace("T", " "),
        "flavors": {"tensorflow": flavor},
        "signature": {name: json.dumps(fields) for name, fields in _SIGNATURE.items()},
        "metadata": dict(run.tags),
    }


def _pairs(values: Mapping[str, str]) -> Sequence[dict[str, str]]:
    return [{"key": k, "value": v[:_LONGEST_VALUE]} for k, v in values.items() if v]


def _place(root: str, *names: str) -> str:
    """Return the path of an artifact in the API of the artifacts' proxy."""
    folder = root.removeprefix(_ARTIFACTS).lstrip("/")
    return os.path.join("api/2.0/mlflow-artifacts/artifacts", folder, *names)

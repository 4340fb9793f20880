"""Reports a finished run to MLflow: parameters, metrics, lineage as tags, the report and the card.

Source: the REST API of MLflow 3, https://mlflow.org/docs/latest/rest-api.html.
"""

import base64
import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from components.contract.errors import ServiceError
from components.contract.printable import hide_login
from pipeline_def.config.config import TOKEN_VARIABLE, TrackingConfig
from pipeline_def.runs.history import flatten
from pipeline_def.runs.record import RunRecord, now
from pipeline_def.service_errors import one_line, read_message
from pipeline_def.steps import REPORT, TRAINER

# The other sections describe machines, or may hold secrets, as the variables of Kubeflow's steps.
_SECTIONS = (
    *("data", "ingest", "validation", "transform", "model", "input", "augmentation"),
    *("training", "transfer", "export", "evaluation"),
)
_FILES = {"html": "report.html", "card": "model_card.md", "metrics": "metrics.json"}
_STATES = {"done": "FINISHED", "failed": "FAILED", "stopped": "KILLED", "running": "RUNNING"}
_TIMEOUT = (3.0, 10.0)  # Seconds to connect, and to wait for a response.
_BATCH, _LONGEST_VALUE = 100, 6000  # Rows in a request and characters that MLflow takes.


def report_run(record: RunRecord, config: TrackingConfig) -> str:
    """Report a run, and return a line for the user about what came of it; raise no error."""
    failed = f"MLflow has not received run {record.id}"
    try:
        return f"MLflow has run {record.id}: {_send_run(record, config)}"
    except ServiceError as error:
        return f"{failed}: {error}"
    except Exception as error:  # A surprise in a response must not fail the run.
        return f"{failed}: its response is unexpected ({type(error).__name__})."


def _send_run(record: RunRecord, config: TrackingConfig) -> str:
    """Send a run; return the address of its page."""
    url, name = (config.mlflow or "").rstrip("/"), record.pipeline
    wanted: dict[str, Any] = {"filter": f'name = "{name}"', "max_results": 1}
    experiments = _send(url, "mlflow/experiments/search", wanted).get("experiments")
    experiments = experiments or [_send(url, "mlflow/experiments/create", {"name": name})]
    at = {"experiment_id": experiments[0]["experiment_id"]}
    new = at | {"run_name": f"{name} {record.id}", "start_time": _milliseconds(record.started)}
    new |= {"tags": _pairs({"pipeline_run": record.id})}
    info = _send(url, "mlflow/runs/create", new)["run"]["info"]
    run = {"run_id": info["run_id"]}
    rows = {"tags": _list_tags(record), "params": _list_parameters(record)}
    rows["metrics"] = [*_metrics(record, info["start_time"])]
    for kind, values in rows.items():
        for start in range(0, len(values), _BATCH):
            _send(url, "mlflow/runs/log-batch", run | {kind: values[start : start + _BATCH]})
    end = {"status": _STATES[record.state], "end_time": _milliseconds(record.ended or now())}
    _send(url, "mlflow/runs/update", run | end)
    scheme, _, folder = info["artifact_uri"].partition(":/")
    if scheme != "mlflow-artifacts":
        raise ServiceError(f"{url} has the run without files: start it with --serve-artifacts.")
    outputs = record.steps[REPORT.id].outputs if REPORT.id in record.steps else {}
    for output, file in _FILES.items():
        path = os.path.join(outputs[output].uri, file) if output in outputs else ""
        if os.path.isfile(path):
            with open(path, "rb") as content:
                _send(url, f"mlflow-artifacts/artifacts/{folder}/{file}", content.read())
    return f"{url}/#/experiments/{at['experiment_id']}/runs/{run['run_id']}"


def _list_tags(record: RunRecord) -> list[dict[str, Any]]:
    """Return the lineage, from the images' fingerprint to the pushed version."""
    tags = {
        "mlflow.note.content": record.headline or record.error,
        "images": record.data.folder,
        "images_fingerprint": record.data.fingerprint,
        "verdict": record.outcome,
        "evidence": record.evidence,
        "pushed_version": record.pushed.version if record.pushed else "",
        "pushed_to": record.pushed.destination if record.pushed else "",
        **{f"code_digest.{step}": code for step, code in record.code.items()},
        **{f"version.{name}": version for name, version in record.versions.items()},
    }
    return _pairs(tags)


def _list_parameters(record: RunRecord) -> list[dict[str, Any]]:
    settings = flatten({name: record.configuration.get(name) for name in _SECTIONS})
    some = {name: value for name, value in settings if value not in (None, {}, [])}
    return _pairs({k: v if isinstance(v, str) else json.dumps(v) for k, v in some.items()})


def _metrics(record: RunRecord, time: int) -> Iterator[dict[str, Any]]:
    """Yield metrics per epoch and of the evaluation; MLflow keeps two that differ in the time."""
    series: dict[str, Any] = {}
    trainer = record.steps.get(TRAINER.id)
    if trainer and "model_run" in trainer.outputs:
        with contextlib.suppress(OSError, ValueError):
            series |= trainer.outputs["model_run"].read_json("history.json")
    series |= {f"{record.split}_{name}": [value] for name, value in record.metrics.items()}
    for name, values in series.items():
        for step, value in enumerate(values if isinstance(values, list) else []):
            # JSON has no infinities.
            if isinstance(value, int | float) and math.isfinite(value):
                yield {"key": name, "value": value, "timestamp": time, "step": step}


def _milliseconds(time: str) -> int:
    return round(datetime.fromisoformat(time).timestamp() * 1000)


def _pairs(values: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": k, "value": hide_login(v)[:_LONGEST_VALUE]} for k, v in values.items() if v]


def _send(url: str, path: str, body: dict[str, Any] | bytes) -> Any:
    """PUT bytes, or POST JSON; return the JSON of the response. No error quotes the token."""
    import requests

    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    basic = base64.b64encode(token.encode()).decode()
    headers = {"Authorization": f"Basic {basic}" if ":" in token else f"Bearer {token}"}
    try:
        response = requests.request(
            "PUT" if isinstance(body, bytes) else "POST",
            f"{url}/api/2.0/{path}",
            data=body if isinstance(body, bytes) else None,
            json=body if isinstance(body, dict) else None,
            timeout=_TIMEOUT,
            allow_redirects=False,
            # Headers that are set in a function are not replaced by what ~/.netrc has.
            auth=lambda request: request.headers.update(headers if token else {}) or request,
        )
    except requests.RequestException as error:
        reason = one_line(str(error)).rpartition(": ")[2].strip("()'\"")
        raise ServiceError(f"{url} could not be reached ({reason}).") from None
    if response.status_code < 300:
        return response.json() if response.content else {}
    secret = token.partition(":")[2] or token
    text = "" if "<" in response.text[:20] else one_line(read_message(response.text), secret)
    raise ServiceError(
        f"{url} refused {path} ({response.status_code}: {text}): check tracking.mlflow "
        f"and the token in the environment variable {TOKEN_VARIABLE}."
    )

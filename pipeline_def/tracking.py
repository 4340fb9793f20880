"""Reports a finished run to MLflow: parameters, metrics, files, and a pushed model as a version.

Source: the REST API of MLflow 3, https://mlflow.org/docs/latest/rest-api.html. A run is found again
by its tag, a version by that of the push, so a repeated report only completes what is there.
"""

import base64
import contextlib
import itertools
import json
import math
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

import yaml

from components.contract.errors import ServiceError, StorageError, UserError
from components.contract.printable import make_printable
from components.storage.saved_model import SERVING_FOLDER, model_digest
from pipeline_def.config.tracking import TOKEN_VARIABLE, TrackingConfig
from pipeline_def.layout import Layout
from pipeline_def.runs.history import flatten
from pipeline_def.runs.record import RunRecord, StepOutput, read_records
from pipeline_def.service_errors import one_line, read_message
from pipeline_def.steps import PUSHER, REPORT, TRAINER

# The other sections describe machines, or may hold secrets, as the variables of Kubeflow's steps.
_SECTIONS = (
    *("data", "ingest", "validation", "transform", "model", "input", "augmentation"),
    *("training", "transfer", "export", "evaluation"),
)
_FILES = {"html": "report.html", "card": "model_card.md", "metrics": "metrics.json"}
_STATES = {"done": "FINISHED", "failed": "FAILED", "stopped": "KILLED", "running": "RUNNING"}
_ARTIFACTS = "mlflow-artifacts:/"
LIMIT_SECONDS = 30.0
"""A run waits no longer for a report."""
_CONNECT_SECONDS, _ANSWER_SECONDS, _UPLOAD_SECONDS = 3.0, 10.0, 20.0
# Of one request, and of one value.
_MOST = {"params": 100, "metrics": 1000}
_LONGEST_VALUE = 6000


@contextlib.contextmanager
def reporting(config: TrackingConfig, output: str) -> Iterator[None]:
    """Report the run that is recorded in the context, also a failed one, and print the result."""
    before = _list_ids(output)
    try:
        yield
    finally:
        if config.mlflow and not isinstance(sys.exception(), KeyboardInterrupt):
            with contextlib.suppress(StorageError):
                for run_id in sorted(_list_ids(output) - before):
                    for record in read_records(output, run_id):
                        print(make_printable(report_run(record, config)), flush=True)


def _list_ids(output: str) -> set[str]:
    runs = Layout(output).runs
    return set(os.listdir(runs)) if os.path.isdir(runs) else set()


def report_run(record: RunRecord, config: TrackingConfig) -> str:
    """Report a run, and return a line for the user about what came of it.

    Neither a failure nor an outage raises an error, or takes longer than 30 s.
    """
    failed = f"MLflow has not received run {record.id}"
    lines = [f"{failed}: it takes longer than {LIMIT_SECONDS:g} s."]

    def send() -> None:
        try:
            lines.append(f"MLflow has run {record.id}: {_send_run(record, config)}")
        except ServiceError as error:
            lines.append(f"{failed}: {error}")
        except Exception as error:  # A surprise in a response must not fail the run.
            lines.append(f"{failed}: its response is unexpected ({type(error).__name__}).")

    # It does not keep the process from ending.
    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    thread.join(LIMIT_SECONDS)
    return lines[-1]


def _send_run(record: RunRecord, config: TrackingConfig) -> str:
    """Send a run, or complete it if it is there; return the address of its page."""
    server, tags = _Server((config.mlflow or "").rstrip("/")), _read_tags(record)
    experiment_id = _find_or_create_experiment(server, record.pipeline)
    info = _find_or_create_run(server, record, experiment_id)
    run_id, root = info["run_id"], str(info.get("artifact_uri", ""))
    for batch in _batches(record, tags):
        server.post("runs/log-batch", "log the run", run_id=run_id, **batch)
    ended = {"end_time": _milliseconds(record.ended)} if record.ended else {}
    status = _STATES[record.state]
    server.post("runs/update", "update the run", run_id=run_id, status=status, **ended)
    if not root.startswith(_ARTIFACTS):
        raise ServiceError(
            f"{server.url} has the run without its files, as it does not take them itself: start "
            "it with --serve-artifacts."
        )
    folder = root.removeprefix(_ARTIFACTS).strip("/")
    for name, path in _find_files(record).items():
        server.put_file(f"{folder}/{name}", path)
    if record.pushed:
        _upload_model(server, record, run_id, f"{folder}/model", tags)
        _register(server, record, run_id, f"{root}/model", tags)
    return f"{server.url}/#/experiments/{experiment_id}/runs/{run_id}"


def _find_or_create_experiment(server: "_Server", name: str) -> str:
    query = {"filter": f'name = "{name}"', "max_results": 1}
    found = server.post("experiments/search", f"find the experiment {name}", **query)
    experiments = found.get("experiments") or [
        server.post("experiments/create", f"create the experiment {name}", name=name)
    ]
    return str(experiments[0]["experiment_id"])


def _find_or_create_run(server: "_Server", record: RunRecord, experiment_id: str) -> dict[str, Any]:
    query = {"experiment_ids": [experiment_id], "filter": f"tags.pipeline_run = '{record.id}'"}
    if found := server.post("runs/search", "look for the run", **query).get("runs"):
        return dict(found[0]["info"])
    new = {
        "experiment_id": experiment_id,
        "run_name": f"{record.pipeline} {record.id}",
        "start_time": _milliseconds(record.started),
        "tags": _pairs({"pipeline_run": record.id}),
    }
    return dict(server.post("runs/create", "create a run", **new)["run"]["info"])


def _upload_model(
    server: "_Server", record: RunRecord, run_id: str, folder: str, tags: Mapping[str, str]
) -> None:
    """Upload the pushed model, if it is on this machine, and how MLflow loads it."""
    top = record.pushed.destination if record.pushed else ""
    copy = _find_output(record, PUSHER.id, "pushed_model")
    top = copy.uri if copy and not os.path.isdir(top) else top
    for parent, _, names in os.walk(top):
        for path in (os.path.join(parent, name) for name in names):
            server.put_file(f"{folder}/tf2model/{os.path.relpath(path, top)}", path)
    flavor = {"code": "", "model_type": "tf2-module", "saved_model_dir": "tf2model"}
    description = {
        "artifact_path": "model",
        "run_id": run_id,
        "utc_time_created": (record.ended or record.started)[:19].replace("T", " "),
        "flavors": {"tensorflow": flavor},
        "signature": _SIGNATURE,
        "metadata": dict(tags),
    }
    server.put(f"{folder}/MLmodel", yaml.safe_dump(description).encode())


def _register(
    server: "_Server", record: RunRecord, run_id: str, source: str, tags: Mapping[str, str]
) -> None:
    """Register a pushed model as a version."""
    name, action = record.pipeline, "register the model"
    query = f"name='{name}'"
    if not server.get("registered-models/search", action, filter=query).get("registered_models"):
        server.post("registered-models/create", action, name=name)
    query += f" and tags.pushed_version='{tags['pushed_version']}'"
    if not server.get("model-versions/search", action, filter=query).get("model_versions"):
        new = {"run_id": run_id, "description": record.headline, "tags": _pairs(tags)}
        server.post("model-versions/create", action, name=name, source=source, **new)


# Of `serving_default`, as in components/trainer/export/signatures.py.
_SIGNATURE = {
    "inputs": '[{"name": "image_bytes", "type": "binary", "required": true}]',
    "outputs": '[{"name": "label", "type": "string", "required": true}, '
    '{"name": "probabilities", "type": "array", "items": {"type": "float"}, "required": true}, '
    '{"name": "labels", "type": "array", "items": {"type": "string"}, "required": true}, '
    '{"name": "error", "type": "string", "required": true}]',
}


def _batches(record: RunRecord, tags: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield tags, parameters and metrics in requests that MLflow takes."""
    yield {"tags": _pairs({**tags, "mlflow.note.content": record.headline or record.error})}
    for kind, rows in (("params", _parameters(record)), ("metrics", list(_metrics(record)))):
        for start in range(0, len(rows), _MOST[kind]):
            yield {kind: rows[start : start + _MOST[kind]]}


def _parameters(record: RunRecord) -> list[dict[str, str]]:
    chosen = {name: value for name, value in record.configuration.items() if name in _SECTIONS}
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in flatten(chosen)
        if value not in (None, {}, [])
    }
    return _pairs(texts)


def _metrics(record: RunRecord) -> Iterator[dict[str, Any]]:
    """Yield metrics per epoch and of the evaluation, always with the same time.

    MLflow keeps two that differ in it.
    """
    trainer, model_run = record.steps.get(TRAINER.id), _find_output(record, TRAINER.id, "model_run")
    time = _milliseconds(trainer.started if trainer and trainer.started else record.started)
    epochs: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        epochs = model_run.read_json("history.json") if model_run else {}
    lists = ((name, values) for name, values in epochs.items() if isinstance(values, list))
    final = ((f"{record.split}_{name}", [value]) for name, value in record.metrics.items())
    for name, values in itertools.chain(lists, final):
        for step, value in enumerate(values):
            # JSON has no infinities.
            if isinstance(value, int | float) and math.isfinite(value):
                yield {"key": name, "value": value, "timestamp": time, "step": step}


def _read_tags(record: RunRecord) -> dict[str, str]:
    """Return the lineage, from the images' fingerprint to the pushed version."""
    pushed, model, digest = record.pushed, _find_output(record, TRAINER.id, "model"), ""
    with contextlib.suppress(UserError, OSError):
        digest = model_digest(f"{model.uri}/{SERVING_FOLDER}") if model else ""
    return {
        "pipeline": record.pipeline,
        "pipeline_run": record.id,
        "images": record.data.folder,
        "images_fingerprint": record.data.fingerprint,
        "corrections_sha256": record.data.corrections.get("sha256", ""),
        "model_digest": digest,
        "verdict": record.outcome,
        "evidence": record.evidence,
        "pushed_version": pushed.version if pushed else "",
        "pushed_to": pushed.destination if pushed else "",
        **{f"code_digest.{step}": code for step, code in record.code.items()},
        **{f"version.{name}": version for name, version in record.versions.items()},
    }


def _find_files(record: RunRecord) -> dict[str, str]:
    """Return name → path of the report's files; on Kubeflow the artifact itself is the file."""
    outputs = {file: _find_output(record, REPORT.id, name) for name, file in _FILES.items()}
    places = [(f, p) for f, one in outputs.items() if one for p in (one.uri, f"{one.uri}/{f}")]
    return {file: path for file, path in places if os.path.isfile(path)}


def _find_output(record: RunRecord, step: str, name: str) -> StepOutput | None:
    return record.steps[step].outputs.get(name) if step in record.steps else None


def _milliseconds(time: str) -> int:
    """Return milliseconds since 1970 of an ISO 8601 time."""
    return round(datetime.fromisoformat(time).timestamp() * 1000)


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": k, "value": v[:_LONGEST_VALUE]} for k, v in values.items() if v]


class _Server:
    """MLflow's API. Each failure is one sentence without the token.

    `action` completes "could not <action>" in it.
    """

    def __init__(self, url: str) -> None:
        self.url, self.token = url, os.environ.get(TOKEN_VARIABLE, "").strip()

    def get(self, path: str, action: str, **query: str) -> dict[str, Any]:
        return self._send("GET", f"mlflow/{path}", action, params=query)

    def post(self, path: str, action: str, **body: Any) -> dict[str, Any]:
        return self._send("POST", f"mlflow/{path}", action, json=body)

    def put_file(self, path: str, file: str) -> None:
        with open(file, "rb") as data:
            # An empty file would be sent in chunks, which some servers refuse.
            self.put(path, data if os.path.getsize(file) else b"")

    def put(self, path: str, data: Any) -> None:
        place = quote(f"mlflow-artifacts/artifacts/{path}")
        self._send("PUT", place, f"store {path}", seconds=_UPLOAD_SECONDS, data=data)

    def _send(
        self, method: str, path: str, action: str, seconds: float = _ANSWER_SECONDS, **content: Any
    ) -> dict[str, Any]:
        """Return the JSON object of the response."""
        import requests

        try:
            response = requests.request(
                method,
                f"{self.url}/api/2.0/{path}",
                timeout=(_CONNECT_SECONDS, seconds),
                allow_redirects=False,
                auth=self._authorize,
                **content,
            )
        except (requests.RequestException, OSError) as error:
            reason = one_line(str(error)).rpartition(": ")[2].strip("()'\"")
            raise ServiceError(f"{self.url} could not {action} ({reason}).") from None
        with contextlib.suppress(ValueError):
            found = response.json() if response.content else {}
            if isinstance(found, dict) and response.status_code < 300:
                return found
        text = "" if "<" in response.text[:20] else read_message(response.text)
        for secret in filter(None, (self.token, self.token.partition(":")[2])):
            text = text.replace(secret, "***")
        raise ServiceError(
            f"{self.url} could not {action} ({response.status_code}: {one_line(text)}): check "
            f"tracking.mlflow and the token in the environment variable {TOKEN_VARIABLE}."
        )

    def _authorize(self, request: Any) -> Any:
        """Set the header in a function, as requests would replace it by what ~/.netrc has."""
        if ":" in self.token:
            encoded = base64.b64encode(self.token.encode()).decode()
            request.headers["Authorization"] = f"Basic {encoded}"
        elif self.token:
            request.headers["Authorization"] = f"Bearer {self.token}"
        return request

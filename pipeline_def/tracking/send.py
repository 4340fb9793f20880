"""Reports runs to the services of the section `tracking`; begin reading here.

`RunRecord` → `describe_run` → MLflow, OpenLineage and the model registry, each in a thread of its
own, so that no service delays the run or another service.
"""

import contextlib
import functools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from components.contract.errors import ServiceError, StorageError
from components.contract.printable import make_printable
from pipeline_def.config.tracking import TrackingConfig
from pipeline_def.layout import Layout
from pipeline_def.runs.record import RunRecord, read_records
from pipeline_def.tracking import mlflow, model_registry, openlineage
from pipeline_def.tracking.facts import describe_run
from pipeline_def.tracking.service import Service

TITLES = {"mlflow": "MLflow", "openlineage": "OpenLineage", "model_registry": "Model registry"}
# A run waits no longer for all services together.
_LIMIT_SECONDS = 30.0


@contextlib.contextmanager
def reporting(config: TrackingConfig, output: str) -> Iterator[None]:
    """Report the run that is recorded in the context, also a failed one, and print what came of it.

    Neither a failure nor an outage of a service raises an error or takes longer than 30 s.
    """
    before = _list_ids(output)
    try:
        yield
    except KeyboardInterrupt:
        raise
    except Exception:
        _report(config, output, before)
        raise
    _report(config, output, before)


def _report(config: TrackingConfig, output: str, before: set[str]) -> None:
    if not config.urls():
        return
    with contextlib.suppress(StorageError):
        for run_id in sorted(_list_ids(output) - before):
            for record in read_records(output, run_id):
                for result in report(record, config, output, limit=_LIMIT_SECONDS):
                    print(make_printable(result.text), flush=True)


def _list_ids(output: str) -> set[str]:
    runs = Layout(output).runs
    return set(os.listdir(runs)) if os.path.isdir(runs) else set()


@dataclass(frozen=True)
class Result:
    """What came of sending a run to a service."""

    received: bool
    text: str
    """A line for the user."""


def report(
    record: RunRecord, config: TrackingConfig, output: str, *, limit: float | None = None
) -> Iterator[Result]:
    """Report a run to the services that have not received it.

    With `limit`, all of them together get so many seconds.
    """
    sent = _read_sent(output, record.id)
    waiting = {name: url for name, url in config.urls().items() if sent.get(name) != url}
    calls = {name: functools.partial(send_to, name, record, config) for name in waiting}
    for name, (place, reason) in call_all(calls, limit).items():
        if reason:
            again = f"local_runner.py runs --send --output {output}"
            reason = f"{reason.rstrip('.')}. `{again}` sends it again."
            yield Result(False, f"{TITLES[name]} has not received run {record.id}: {reason}")
        else:
            sent[name] = waiting[name]
            yield Result(True, f"{TITLES[name]} has run {record.id}: {place}")
    if waiting:
        _write_sent(output, record.id, sent)


def call_all(
    calls: Mapping[str, Callable[[], str]], limit: float | None
) -> dict[str, tuple[str, str]]:
    """Call all functions at once; return the result of each, or why there is none."""
    results: dict[str, tuple[str, str]] = {}

    def call(name: str) -> None:
        try:
            results[name] = calls[name](), ""
        except ServiceError as error:
            results[name] = "", f"{error}"
        except Exception as error:  # A surprise in a response must not fail the run.
            results[name] = "", f"its response has an unexpected form ({type(error).__name__})."

    # They do not keep the process from ending.
    threads = [threading.Thread(target=call, args=(name,), daemon=True) for name in calls]
    for thread in threads:
        thread.start()
    end = time.monotonic() + (limit or 0)
    for thread in threads:
        thread.join(None if limit is None else max(0.0, end - time.monotonic()))
    late = "", f"it took longer than {limit or 0:g} s."
    return {name: results.get(name, late) for name in calls}


def send_to(name: str, record: RunRecord, config: TrackingConfig) -> str:
    """Send a run to one service; return where it is; raise ServiceError if that failed."""
    service = Service(config.urls()[name], config.variable(name))
    run = describe_run(record)
    if name == "mlflow":
        return mlflow.send(run, service, experiment=config.experiment or record.pipeline)
    senders = {"openlineage": openlineage.send, "model_registry": model_registry.send}
    return senders[name](run, service)


def send_missing(output: str, config: TrackingConfig) -> Iterator[Result]:
    """Send each run to the services that lack it.

    The services are those of `config`, or else of the run's own configuration.
    """
    for record in read_records(output):
        if record.state != "running":
            chosen = config if config.urls() else _read_config(record)
            yield from report(record, chosen, output)


def _read_config(record: RunRecord) -> TrackingConfig:
    return TrackingConfig(**record.configuration.get("tracking", {}))


def _read_sent(output: str, run_id: str) -> dict[str, str]:
    """Return service → the URL that has received the run."""
    with contextlib.suppress(OSError, ValueError):
        with open(Layout(output).sent(run_id), encoding="utf-8") as file:
            found: Any = json.load(file)
        return dict(found)
    return {}


def _write_sent(output: str, run_id: str, sent: Mapping[str, str]) -> None:
    """Note who has received a run; without the note it would be sent, and found, once more."""
    path = Layout(output).sent(run_id)
    with contextlib.suppress(OSError):
        with open(f"{path}.unfinished", "w", encoding="utf-8") as file:
            json.dump(dict(sent), file)
        os.replace(f"{path}.unfinished", path)

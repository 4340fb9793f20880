"""Reports a step to the services of the section `tracking` from its own pod.

No pod knows the whole run. Each step sends its own OpenLineage events; ImageReport sends the run to
MLflow; Pusher completes it there with the pushed version, and tells the model registry. All name
KFP's run, by which they find each other. What a service misses in an outage stays missing.
"""

import contextlib
import dataclasses
import functools
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pipeline_def.config.tracking import TrackingConfig
from pipeline_def.kubeflow.executor_input import artifacts_of
from pipeline_def.kubeflow.step_interface import StepInterface
from pipeline_def.runs.record import (
    Data,
    Output,
    Pushed,
    RunRecord,
    Step,
    describe_search,
    now,
)
from pipeline_def.steps import PUSHER, REPORT, TRAINER
from pipeline_def.tracking import openlineage
from pipeline_def.tracking.facts import describe_run
from pipeline_def.tracking.send import TITLES, call_all, send_to
from pipeline_def.tracking.service import Service

# A pod waits no longer for all services together.
_LIMIT_SECONDS = 20.0
_RUN = re.compile(r"/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/")


@contextlib.contextmanager
def reporting(
    step: str, interface: StepInterface, given: Mapping[str, Any], prepared: Mapping[str, Any]
) -> Iterator[None]:
    """Report the step that runs in the context; neither a failure nor an outage raises an error.

    Args:
        step: name of the step.
        interface: has the services.
        given: executor input of the launcher, with remote URIs.
        prepared: the same with local paths.
    """
    assert interface.tracking
    started, began, error = now(), time.monotonic(), ""
    try:
        yield
    except Exception as failure:
        error = (str(failure).strip() or type(failure).__name__).splitlines()[0]
        raise
    finally:
        seconds = round(time.monotonic() - began, 3)
        own = Step("failed" if error else "done", started, seconds)
        try:
            calls = _list_calls(step, interface, own, error, given, prepared)
            for name, (place, reason) in call_all(calls, _LIMIT_SECONDS).items():
                print(f"{TITLES[name]}: {reason or place}", flush=True)
        except Exception as problem:  # A surprise in a file must not fail a step that is done.
            print(f"Not reported: {type(problem).__name__}: {problem}", flush=True)


def _list_calls(
    step: str,
    interface: StepInterface,
    own: Step,
    error: str,
    given: Mapping[str, Any],
    prepared: Mapping[str, Any],
) -> dict[str, Callable[[], str]]:
    """Return service → what to call for this step."""
    config = interface.tracking or TrackingConfig()
    urls = config.urls()
    record = _describe(step, interface, own, error, given)
    calls: dict[str, Callable[[], str]] = {}
    if "openlineage" in urls:
        service = Service(urls["openlineage"], config.variable("openlineage"))
        run = describe_run(record)
        calls["openlineage"] = functools.partial(openlineage.send, run, service, whole=False)
    tellers = {REPORT.id: ("mlflow",), PUSHER.id: ("mlflow", "model_registry")}
    names = [] if error else [name for name in tellers.get(step, ()) if name in urls]
    complete = _complete(record, step, given, prepared) if names else record
    return calls | {name: functools.partial(send_to, name, complete, config) for name in names}


def _describe(
    step: str, interface: StepInterface, own: Step, error: str, given: Mapping[str, Any]
) -> RunRecord:
    """Return the record of a run that consists of one step."""
    uris = [artifact["uri"] for artifact in artifacts_of(given)]
    found = next(filter(None, map(_RUN.search, uris)), None)
    inputs, outputs = (_read_outputs(given[side]) for side in ("inputs", "outputs"))
    step_record = Step(
        own.state,
        own.started,
        own.seconds,
        inputs={name: [one.uri] for name, one in inputs.items()},
        outputs=outputs,
    )
    return RunRecord(
        id=found[1] if found else own.started,
        pipeline=interface.pipeline,
        started=own.started,
        configuration={},
        code={step: str(given["inputs"]["parameterValues"].get("code_digest") or "")},
        versions={},
        host="kubeflow",
        state="failed" if error else "done",
        ended=now(),
        error=error,
        steps={step: step_record},
    )


def _read_outputs(side: Mapping[str, Any]) -> dict[str, Output]:
    return {
        name: Output(listed["artifacts"][0]["uri"], "", dict(listed["artifacts"][0]["metadata"]))
        for name, listed in side["artifacts"].items()
        if listed["artifacts"]
    }


def _complete(
    record: RunRecord, step: str, given: Mapping[str, Any], prepared: Mapping[str, Any]
) -> RunRecord:
    """Return the record with what the pod of the report or of the push knows about the run."""
    inputs, outputs = (_read_outputs(prepared[side]) for side in ("inputs", "outputs"))
    trained = {name: one for name, one in inputs.items() if name in ("model", "model_run")}
    made = outputs if step == REPORT.id else {"card": inputs["card"], **outputs}
    steps = {TRAINER.id: Step("done", record.started, outputs=trained)}
    steps[REPORT.id] = steps[step] = Step("done", record.started, outputs=made)
    facts: dict[str, Any] = {}
    if examples := inputs.get("examples"):
        known = examples.properties
        folder, fingerprint = (known.get(name, "") for name in ("folder", "input_fingerprint"))
        facts["data"] = Data(str(folder), str(fingerprint))
    if "model_run" in inputs:
        facts["configuration"] = inputs["model_run"].read_json("training.json")["config"]
    if step == PUSHER.id:
        facts["pushed"] = _read_pushed(given["outputs"]["outputFile"])
    complete = dataclasses.replace(record, steps=steps, **facts)
    if path := describe_run(complete).files.get("metrics.json"):
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        metrics = {name: measured["value"] for name, measured in report["metrics"].items()}
        split = str(inputs["evaluation"].properties.get("split", ""))
        facts = {"metrics": metrics, "split": split, "search": describe_search(report)}
        complete = dataclasses.replace(complete, **facts, **report["verdict"])
    return complete


def _read_pushed(output_file: str) -> Pushed | None:
    with open(output_file, encoding="utf-8") as file:
        [artifact] = json.load(file)["artifacts"]["pushed_model"]["artifacts"]
    known = artifact["metadata"]
    if not known.get("pushed"):
        return None
    return Pushed(str(known["pushed_version"]), str(known["pushed_destination"]))

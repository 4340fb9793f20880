"""Reports a run to MLflow from the pod of its last steps, from the evaluation to the push.

No pod knows the whole run: this one has its model, metrics and report. The run is named by KFP's
id, so that a retry of the pod completes it.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

from components.storage.folder import read_bytes
from pipeline_def.config.tracking import TrackingConfig
from pipeline_def.kubeflow.executor_input import local_path, run_folder
from pipeline_def.kubeflow.step_interface import StepInterface
from pipeline_def.runs.record import Data, Pushed, RunRecord, Step, StepOutput, now
from pipeline_def.steps import PUSHER, REPORT, TRAINER
from pipeline_def.tracking import report_run


def report_pod(
    config: TrackingConfig,
    interface: StepInterface,
    given: Mapping[str, Any],
    made: Mapping[str, Any],
    *,
    error: str = "",
) -> None:
    """Report the run and print the result; neither a failure nor an outage raises an error.

    `given` is the launcher's executor input, `made` the pod's executor output, as far as it came.
    """
    if "metrics" not in made["artifacts"]:
        return
    try:
        record = _describe(interface, given, made["artifacts"], error)
    except Exception as problem:  # A surprise in a file must not fail steps that are done.
        print(f"Not reported to MLflow: {type(problem).__name__}: {problem}", flush=True)
        return
    print(report_run(record, config), flush=True)


def _describe(
    interface: StepInterface, given: Mapping[str, Any], made: Mapping[str, Any], error: str
) -> RunRecord:
    """Return the record of the run, as far as this pod knows it."""
    direct = any(part.direct for part in interface.parts)
    inputs = _list_outputs(given["inputs"]["artifacts"], direct=direct)
    outputs = _list_outputs(made, direct=direct)
    run = run_folder(given, interface.pipeline)
    time, values = now(), given["inputs"]["parameterValues"]
    report = json.loads(read_bytes(outputs["metrics"].uri))
    trained = {name: inputs[name] for name in ("model", "model_run")}
    examples = inputs["examples"].properties
    return RunRecord(
        id=os.path.basename(run) if run else time,
        pipeline=interface.pipeline,
        started=time,
        ended=time,
        host="kubeflow",
        state="failed" if error else "done",
        error=error,
        configuration=json.loads(read_bytes(f"{trained['model_run'].uri}/training.json"))["config"],
        code={part.step: str(values.get(part.shared("code_digest"))) for part in interface.parts},
        versions={},
        steps={
            TRAINER.id: Step("done", time, outputs=trained),
            REPORT.id: Step("done", time, outputs=outputs),
            PUSHER.id: Step("failed" if error else "done", time, outputs=outputs),
        },
        data=Data(str(examples.get("folder", "")), str(examples.get("input_fingerprint", ""))),
        metrics={name: measured["value"] for name, measured in report["metrics"].items()},
        split=str(outputs["evaluation"].properties.get("split", "")),
        pushed=_read_push(outputs.get("pushed_model")),
        **report["verdict"],
    )


def _list_outputs(artifacts: Mapping[str, Any], *, direct: bool) -> dict[str, StepOutput]:
    """Return name → artifact, whose URI is the launcher's copy unless steps read remote ones."""
    first = {name: one["artifacts"][0] for name, one in artifacts.items() if one["artifacts"]}
    return {
        name: StepOutput(
            artifact["uri"] if direct else local_path(artifact["uri"]),
            "",
            dict(artifact.get("metadata", {})),
        )
        for name, artifact in first.items()
    }


def _read_push(model: StepOutput | None) -> Pushed | None:
    known = model.properties if model else {}
    if not known.get("pushed"):
        return None
    return Pushed(str(known["pushed_version"]), str(known["pushed_destination"]))

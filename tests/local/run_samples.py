"""Records of runs, as `local_runner.py` writes them, in a folder of outputs."""

import dataclasses
import socket
from pathlib import Path
from typing import Any

from components.contract.configuration import to_dict
from pipeline_def.config.config import Config
from pipeline_def.runs.record import Data, Pushed, RunRecord, Step, StepOutput, write_record

FIRST, SECOND = "files:1200,sha256:aaaaaaaabbbb", "files:1300,sha256:ccccccccdddd"

# Step → its inputs, as the steps that make them, and the types of its outputs, by their names.
_STEPS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "ImageExampleGen": ({}, {"examples": "Examples"}),
    "Trainer": ({"examples": "ImageExampleGen"}, {"model": "Model"}),
    "Evaluator": (
        {"examples": "ImageExampleGen", "model": "Trainer"},
        {"blessing": "ModelBlessing"},
    ),
    "ImageReport": ({"blessing": "Evaluator"}, {"card": "system.Markdown"}),
    "Pusher": ({"model": "Trainer", "card": "ImageReport"}, {"pushed_model": "PushedModel"}),
}


def configure(data: str = "/data", **sections: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration as a record has it."""
    configuration = to_dict(Config(data=data))
    for name, fields in sections.items():
        configuration[name] |= fields
    return configuration


def write_run(output: Path, number: int, **changes: Any) -> RunRecord:
    """Write the record of a run that was done at minute `number`, but for `changes`.

    Args:
        output: folder.
        number: of the run, its id.
        changes: fields of the record, and `cached`, the steps that did not run; `until`, the last
            one that began; `fingerprint` and `accuracy`.
    """
    cached, until = changes.pop("cached", ()), changes.pop("until", "Pusher")
    fingerprint, accuracy = changes.pop("fingerprint", FIRST), changes.pop("accuracy", 0.9)
    names = list(_STEPS)
    names = names[: names.index(until) + 1]
    record = RunRecord(
        id=str(number),
        pipeline="images",
        started=f"2026-11-22T10:{number:02d}:00.000+00:00",
        ended=f"2026-11-22T10:{number:02d}:42.000+00:00",
        configuration=configure(),
        code={"Trainer": "t1"},
        versions={"tfx": "1.16.0"},
        host=socket.gethostname(),
        state="done",
        steps={name: _make_step(output, number, name, name in cached) for name in names},
        data=Data("/data", fingerprint, 2, None, {"eval": 200, "train": 1000}),
        metrics={"accuracy": accuracy, "auc": None} if "ImageReport" in names else {},
        split="eval",
        blessed=True if "Evaluator" in names else None,
        pushed=Pushed(str(number), f"/out/pushed/{number}") if "Pusher" in names else None,
    )
    record = dataclasses.replace(record, **changes)
    write_record(record, str(output))
    return record


def _make_step(output: Path, number: int, name: str, cached: bool) -> Step:
    """A cached step has the outputs of run 1."""
    inputs, outputs = _STEPS[name]

    def uri(step: str, key: str) -> str:
        return str(output / "artifacts" / step / key / ("1" if cached else str(number)))

    return Step(
        state="cached" if cached else "done",
        started=f"2026-11-22T10:{number:02d}:01.000+00:00",
        seconds=4.0,
        inputs={key: [uri(step, key)] for key, step in inputs.items()},
        outputs={key: StepOutput(uri(name, key), kind, {}) for key, kind in outputs.items()},
        made_by="1" if cached else "",
    )


def end_training(record: RunRecord, state: Any) -> dict[str, Step]:
    """Return the steps of a record, the Trainer in another state."""
    trainer = dataclasses.replace(record.steps["Trainer"], state=state)
    return {**record.steps, "Trainer": trainer}

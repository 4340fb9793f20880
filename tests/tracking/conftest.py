"""A run whose files and record are in a folder."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from pipeline_def.runs.record import Data, Output, Pushed, RunRecord, write_record
from tests.local.run_samples import write_run

FINGERPRINT = "files:3,sha256:abc"


@pytest.fixture
def record(tmp_path: Path) -> RunRecord:
    """A run with files, whose model was pushed."""

    def put(path: str, content: Any) -> Output:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return Output(str(file.parent), "Model")

    put("pushed/7/saved_model.pb", "graph")
    put("pushed/7/variables/variables.index", "checksums")
    history = {"loss": [2.0, float("inf"), 0.5], "val_accuracy": [0.1, 0.2, 0.3]}
    report = {"html": put("html/report.html", "<p>"), "card": put("card/model_card.md", "# A")}
    base = write_run(tmp_path, 1)
    done = dataclasses.replace(base.steps["Trainer"], inputs={}, outputs={})
    graph = put("model/Format-Serving/saved_model.pb", "graph")
    trained = {
        "model": dataclasses.replace(graph, uri=str(tmp_path / "model")),
        "model_run": put("model_run/history.json", history),
    }
    steps = {
        "Trainer": dataclasses.replace(done, outputs=trained),
        "ImageReport": dataclasses.replace(done, state="cached", outputs=report),
        "Pusher": done,
    }
    changed = dataclasses.replace(
        base,
        steps=steps,
        data=Data("/data/pets", FINGERPRINT),
        pushed=Pushed("7", str(tmp_path / "pushed" / "7")),
    )
    write_record(changed, str(tmp_path))
    return changed

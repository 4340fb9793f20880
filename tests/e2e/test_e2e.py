"""The parts of the test on a real cluster that need no cluster."""

import argparse
import contextlib
import io
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

import kfp_runner
from e2e import __main__ as scenario
from e2e import cluster, runs
from e2e.cluster import Failure
from e2e.store import Store
from pipeline_def.kubeflow.specification import LOOKUPS
from tests.kubeflow.client.kfp_server import KfpServer, nodes

ROOT = Path(__file__).parents[2]


URL = "http://localhost/#/runs/details/abc"
DONE = f"Run SUCCEEDED: {URL}"
FAILED = f"Run FAILED in the task ImageExampleGen: 5 of 9 files are not usable; see {URL}"
CACHED = dict.fromkeys(runs.NODES, "CACHED")


def output(end: str = DONE, **states: str) -> runs.RunOutput:
    """A run whose steps have all succeeded but those that are named."""
    expected = dict.fromkeys(runs.STEPS, "SUCCEEDED") | states
    return runs.RunOutput("abc", URL, expected, end)


def test_what_came_out_otherwise_is_named() -> None:
    with pytest.raises(Failure, match="Trainer is CACHED, not SUCCEEDED"):
        runs.check_states(output(Trainer="CACHED"), runs.ALL_RAN)
    with pytest.raises(Failure, match="Transform is RUNNING, not CACHED"):
        runs.check_states(output(**{**CACHED, "Transform": "RUNNING"}), runs.ALL_CACHED)
    with pytest.raises(Failure, match="in ImageExampleGen with 'epochs', not: Run FAILED in"):
        runs.check_failed(output(FAILED), "ImageExampleGen", "epochs")


PLAYED: list[str] = []


class Kept(Store):
    """A store with what the runs should have written."""

    def __getattribute__(self, name: str) -> Any:
        if name.endswith(("_digits", "_image", "_images")):
            return lambda *_: PLAYED.append(name)
        written: dict[str, Any] = {"read_metrics": {"metrics": {"accuracy": {"value": 0.9}}}}
        written["pushed_versions"] = ["1", "2"]
        return (lambda *_: written[name]) if name in written else super().__getattribute__(name)


class Cluster(KfpServer):
    """Answers as KFP 2.17 did: each run goes through its states as it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: Counter[str] = Counter()

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        run_id = path.rpartition("/runs/")[2]
        if method != "GET" or "/" in run_id:
            return super().answer(method, path, query, body)
        self.read[run_id] += 1
        [run] = [run for run in self.runs if run["run_id"] == run_id]
        if self.read[run_id] == 1:
            return run | nodes("RUNNING", f"{LOOKUPS} RUNNING 10 -")
        return run | self.finish(run_id, run["display_name"])

    def finish(self, run_id: str, name: str) -> dict[str, Any]:
        """Return the answer at the end of a run."""
        rows = {name: f"{name} SUCCEEDED 10 60" for name in runs.STEPS}
        if name == "second":
            rows |= {name: f"{name} SUCCEEDED 20 20" for name in runs.NODES}
        if name != "broken-images":
            return nodes("SUCCEEDED", *rows.values())
        reason = "ImageExampleGen: error: 5 of 9 files are not usable"
        folder = f"minio://mlpipeline/v2/artifacts/{self.pipelines[-1]['display_name']}/{run_id}"
        self.kept[f"{folder}/logs/ImageExampleGen.txt"] = reason
        return nodes("FAILED", "ImageExampleGen FAILED 60 90")


def run_in_process(*words: str) -> str:
    """Run kfp_runner.py in this process; return what it prints."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        kfp_runner.main(words[2:])
    return said.getvalue()


class Compiled(runs.Runner):
    """Has a specification with the names of all tasks."""

    def compile(self, image: str, data: str, *options: str) -> None:
        names = {"training_epochs": "NUMBER_INTEGER", "max_accuracy_drop": "NUMBER_DOUBLE"}
        parameters = {name: {"parameterType": kind} for name, kind in names.items()}
        tasks = {name: {"componentRef": {"name": name}} for name in runs.STEPS}
        executors = {name: {"container": {"image": "i:1"}} for name in tasks}
        spec = {
            "pipelineInfo": {"name": self.pipeline},
            "deploymentSpec": {"executors": executors},
            "components": {name: {"executorLabel": name} for name in tasks},
            "root": {"inputDefinitions": {"parameters": parameters}, "dag": {"tasks": tasks}},
        }
        self.spec.write_text(yaml.safe_dump(spec))


def test_the_scenario_passes_twice_on_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pipeline_def.kubeflow.client.follow.time.sleep", lambda _: None)
    monkeypatch.setattr(cluster, "follow", run_in_process)
    monkeypatch.setattr(cluster, "read", lambda *words: f"what {words[-1]} says\n")
    options = scenario._parser().parse_args(["--output", str(tmp_path)])
    PLAYED.clear()
    with Cluster() as server:
        for name in ("images-e2e-1", "images-e2e-2"):
            runner = Compiled(tmp_path, server.url, name)
            with scenario.reporting(options, runner):
                scenario.play(options, runner, Kept(name))
        assert [run["display_name"] for run in server.runs[5:]] == [
            *("first", "second", "changed-image", "against-the-baseline", "broken-images")
        ]
        changes = ["change_image", "break_images", "mend_images"]
        assert ["mend_images", "put_digits", *changes] * 2 == PLAYED
        # What a call left in the cache and pushed is another pipeline's.
        assert [pipeline["display_name"] for pipeline in server.pipelines] == [
            "images-e2e-1",
            "images-e2e-2",
        ]
        # The page of the run itself, whatever its place in the list.
        assert "GET /apis/v2beta1/runs" not in server.requests
    assert capsys.readouterr().out.count("Everything passed") == 2
    page = (tmp_path / "report.md").read_text()
    assert "Everything passed.\n" in page
    assert re.search(r"^\| second \| \d+ s \| Lookups RUNNING, .* \| Run SUCCEEDED: ", page, re.M)
    assert "what --show-labels says" in page
    with pytest.raises(Failure), scenario.reporting(options, runner):
        raise Failure("no node has a GPU")
    assert "Failed: no node has a GPU\n" in (tmp_path / "report.md").read_text()


def test_the_command_line_and_the_workflow(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(options: argparse.Namespace) -> None:
        raise Failure(options.steps)

    monkeypatch.setattr(scenario, "run", fail)
    assert scenario.main(["--steps", "{all: {cpu: 1}}"]) == 1
    assert capsys.readouterr().err == "e2e: {all: {cpu: 1}}\n"
    workflow = yaml.safe_load((ROOT / ".github/workflows/e2e.yml").read_text())
    job = workflow["jobs"]["kubeflow"]
    commands = " ".join(step.get("run", "") for step in job["steps"])
    assert ".ci/kind ${{ matrix.release }} uv run python -m e2e --output " in commands
    assert {"run": ".ci/check_slim"} in workflow["jobs"]["weekly"]["steps"]

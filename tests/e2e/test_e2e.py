"""The parts of the test on a real cluster that need no cluster."""

from __future__ import annotations

import base64
import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e import __main__ as command_line
from e2e import cluster, runs, scenario
from e2e.commands import Commands, Failure
from e2e.store import Store
from pipeline_def.runs.record import RunRecord, Step
from pipeline_def.runs.recorder import Recorder
from tests.nodes import NODES
from tests.storage.s3_server import ACCESS_KEY, SECRET_KEY, serve_s3

ROOT = Path(__file__).parents[2]
SECRET = {
    "data": {
        "accesskey": base64.b64encode(ACCESS_KEY.encode()).decode(),
        "secretkey": base64.b64encode(SECRET_KEY.encode()).decode(),
    }
}


class Recorded(Commands):
    """Records commands and returns prepared output."""

    def __init__(self, **answers: str) -> None:
        super().__init__()
        object.__setattr__(self, "asked", [])
        object.__setattr__(self, "answers", answers)

    asked: list[str]
    answers: dict[str, str]

    def require(self, *programs: str) -> None:
        self.asked.append(f"require {' '.join(programs)}")

    def read(self, *words: str) -> str:
        self.asked.append(" ".join(words))
        return next((a for key, a in self.answers.items() if key in words), "")


def test_a_cluster_is_made_and_removed_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = Recorded()
    options = scenario.Options("2.17.0", "i:1", Path())
    with pytest.raises(ZeroDivisionError), scenario._cluster(options, commands):
        raise ZeroDivisionError
    kustomize = "github.com/kubeflow/pipelines/manifests/kustomize"
    assert commands.asked == [
        "require docker kind kubectl",
        f"kind create cluster --name {cluster.NAME} --wait 300s",
        "docker build --tag i:1 .",
        f"kind load docker-image i:1 --name {cluster.NAME}",
        f"kubectl apply --kustomize {kustomize}/cluster-scoped-resources?ref=2.17.0",
        "kubectl wait --for=condition=established --timeout=60s crd/applications.app.k8s.io",
        f"kubectl apply --kustomize {kustomize}/env/platform-agnostic?ref=2.17.0",
        "kubectl --namespace kubeflow wait --for=condition=available --timeout=900s "
        "deployment --all",
        f"kind delete cluster --name {cluster.NAME}",
    ]
    own = Recorded()
    with scenario._cluster(dataclasses.replace(options, kubeconfig="/k"), own):
        pass
    assert own.asked == ["require kubectl"]


def test_a_missing_program_and_a_failing_one_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(Failure, match=r"missing: no-such-program\."):
        Commands().require(sys.executable, "no-such-program")
    script = "import sys; sys.exit('cannot reach it')"
    with pytest.raises(Failure, match="ended with 1: cannot reach it"):
        Commands().read(sys.executable, "-c", script)
    print_variable = "import os; print(os.environ['KUBECONFIG'])"
    shown = Commands({"KUBECONFIG": "/k"}).read(sys.executable, "-c", print_variable)
    assert shown.strip() == "/k"
    # A run takes minutes: its output is shown as it comes.
    assert Commands().follow(sys.executable, "-c", script) == (1, "cannot reach it\n")
    assert capsys.readouterr().out.endswith("\ncannot reach it\n")


def test_the_store_of_the_release_is_found() -> None:
    for store, services in (("seaweedfs", "seaweedfs minio-service"), ("minio-service",) * 2):
        names = "\n".join(f"service/{name}" for name in services.split())
        commands = Recorded(services=names, secret=json.dumps(SECRET))
        assert cluster.find_store(commands) == store
        assert cluster.read_keys(commands) == (ACCESS_KEY, SECRET_KEY)
    with pytest.raises(Failure, match="No object store among the services ml-pipeline"):
        cluster.find_store(Recorded(services="service/ml-pipeline"))


@pytest.fixture
def few_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three zeros instead of all digits."""

    def write(folder: str) -> int:
        (Path(folder) / "0").mkdir()
        for number in range(3):
            (Path(folder) / "0" / f"{number}.png").write_bytes(b"%d" % number)
        return 3

    monkeypatch.setattr("e2e.store.write_digits", write)


@pytest.mark.slow
@pytest.mark.usefixtures("few_digits")
def test_images_and_models_in_the_store() -> None:
    store = Store("mine")
    with serve_s3("mlpipeline"):
        assert store.put_digits() == 3
        fs, path = scenario_store()
        zeros = sorted(fs.ls(f"{path}/0", refresh=True))
        store.change_image()
        assert fs.cat_file(zeros[0]) == fs.cat_file(zeros[1])
        store.break_images(3)
        assert len(fs.ls(f"{path}/0", refresh=True)) == len(zeros) + 3
        store.mend_images()
        assert sorted(fs.ls(f"{path}/0", refresh=True)) == zeros
        root = "mlpipeline/v2/artifacts/mine"
        assert store.pushed_versions() == []
        for version in ("9", "10"):
            fs.pipe_file(f"{root}/pushed/{version}/saved_model.pb", b"x")
        assert store.pushed_versions() == ["9", "10"]
        with pytest.raises(Failure, match="wrote 0 files of metrics"):
            store.read_metrics("id")
        fs.pipe_file(f"{root}/id/ImageReport/task/metrics", b'{"a": 1}')
        assert store.read_metrics("id") == {"a": 1}


def scenario_store() -> Any:
    from components.storage.object_store import open_store
    from e2e.store import DATA

    return open_store(DATA)


def record(state: str = "done", error: str = "", **states: str) -> RunRecord:
    """A run whose steps are all done but those that are named."""
    steps: dict[str, Any] = dict.fromkeys(runs.STEPS, "done")
    steps |= {name.replace("_", "-"): one for name, one in states.items()}
    return RunRecord(
        id="1",
        runner="kubeflow",
        pipeline="images",
        started="",
        configuration={},
        code={},
        versions={},
        host="here",
        state=state,  # type: ignore[arg-type]
        error=error,
        url="http://localhost/#/runs/details/abc",
        steps={name: Step(one) for name, one in steps.items()},
    )


CACHED = dict.fromkeys(NODES, "cached")


def test_a_run_that_did_not_start_is_not_taken_for_an_earlier_one(tmp_path: Path) -> None:
    class Failing(Commands):
        def follow(self, *words: str) -> tuple[int, str]:
            return 2, "cannot reach it"

    runner = runs.Runner(Failing(), tmp_path, "http://e", "mine")
    Recorder(str(tmp_path / "first"), runner="kubeflow", pipeline="mine", configuration={}, code={})
    with pytest.raises(Failure, match="first did not start: cannot reach it"):
        runner.run("first")


def test_what_came_of_a_run_is_checked() -> None:
    assert {*NODES, *runs.LOOKUPS} == runs.STEPS
    assert scenario.run_id(record()) == "abc"
    runs.check_all_ran(record())
    runs.check_all_cached(record(**CACHED))
    runs.check_ran(record(**{**CACHED, "Trainer": "done"}), "Trainer")
    text = "5 files are not usable"
    runs.check_failed(record("failed", text, Trainer="failed"), "Trainer", "not usable")


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: runs.check_all_ran(record(Trainer="cached")), "Trainer is cached, not done"),
        (lambda: runs.check_all_cached(record(**{**CACHED, "Pusher": "done"})), "Pusher is done"),
        (lambda: runs.check_ran(record(**CACHED), "Trainer"), "Trainer is cached, not done"),
        (lambda: runs.check_failed(record(), "Trainer", ""), "it is done"),
        (
            lambda: runs.check_failed(record("failed", "x", Trainer="failed"), "Trainer", "usable"),
            "it should say 'usable'",
        ),
    ],
)
def test_what_came_out_otherwise_is_named(check: Callable[[], None], message: str) -> None:
    with pytest.raises(Failure, match=message):
        check()


class Played(runs.Runner):
    """Knows the result of each run."""

    def compile(self, image: str, data: str) -> None:
        PLAYED.append(f"compile {image} {data}")

    def run(self, name: str, **parameters: object) -> RunRecord:
        PLAYED.append(" ".join([name, *map(str, parameters)]))
        if name == "broken-images":
            return record("failed", "400 of 2197 files are not usable", ImageExampleGen="failed")
        return record(**CACHED) if name == "second" else record()


class Kept(Store):
    """A store with what the runs should have written."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("put_digits", "change_image", "break_images", "mend_images"):
            return lambda *_: PLAYED.append(name)
        return super().__getattribute__(name)

    def read_metrics(self, run_id: str) -> dict[str, Any]:
        return {"metrics": {"accuracy": {"value": 0.9}}}

    def pushed_versions(self) -> list[str]:
        return ["1", "2"]


PLAYED: list[str] = []


def test_everything_is_run_in_order(tmp_path: Path) -> None:
    PLAYED.clear()
    options = scenario.Options("2.17.0", "i:1", tmp_path, browser=False)
    scenario.play(options, Played(Commands(), tmp_path, "http://e", "mine"), Kept("mine"))
    assert PLAYED == [
        "mend_images",
        "put_digits",
        "compile i:1 minio://mlpipeline/e2e/digits",
        "first",
        "second",
        "change_image",
        "changed-image",
        "against-the-baseline training_epochs max_accuracy_drop",
        "break_images",
        "broken-images",
        "mend_images",
    ]


def test_the_command_line_and_the_workflow(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(options: scenario.Options) -> None:
        raise Failure(f"{options.release} {options.keep} {options.browser}")

    monkeypatch.setattr(scenario, "run", fail)
    assert command_line.main(["--release", "2.5.0", "--keep", "--no-browser"]) == 1
    assert capsys.readouterr().err == "e2e: 2.5.0 True False\n"
    workflow = yaml.safe_load((ROOT / ".github/workflows/e2e.yml").read_text())
    job = workflow["jobs"]["kubeflow"]
    assert tuple(job["strategy"]["matrix"]["release"]) == command_line.RELEASES
    commands = " ".join(step.get("run", "") for step in job["steps"])
    assert "uv run python -m e2e --release ${{ matrix.release }}" in commands

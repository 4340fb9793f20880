from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd

import local_runner
from components.contract.errors import UserError
from pipeline_def.layout import Layout
from pipeline_def.local import run_text
from pipeline_def.local.lineage import trace
from pipeline_def.local.run_history import Change, Run, read_runs
from pipeline_def.local.run_settings import name_settings
from pipeline_def.local.run_table import show_lineage, show_runs

State = mlmd.Execution
FIRST, SECOND = "files:1200,sha256:aaaaaaaabbbb", "files:1300,sha256:ccccccccdddd"


def training(**fields: Any) -> dict[str, Any]:
    sections = {"training": {"epochs": 20, **fields}, "transform": {"size": 32}}
    return {"custom_config": json.dumps(sections), "code_digest": "t1"}


class Recorder:
    """Writes runs into a store as TFX would."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.pipeline = "images"
        self._types: dict[Any, int] = {}
        # Type → the newest artifact.
        self._last: dict[str, mlmd.Artifact] = {}
        output.mkdir()
        config = mlmd.ConnectionConfig()
        config.sqlite.filename_uri = Layout(str(output)).metadata
        config.sqlite.connection_mode = mlmd.SqliteMetadataSourceConfig.READWRITE_OPENCREATE
        self._store = metadata_store.MetadataStore(config)

    def step(
        self,
        run: str,
        node: str,
        *,
        properties: dict[str, Any],
        reads: tuple[str, ...],
        writes: dict[str, dict[str, Any]],
        state: int,
    ) -> None:
        """Add an execution; one from the cache has the newest artifacts of the types it writes."""
        kind = self._type(mlmd.ExecutionType(name=f"components.{node}"))
        execution = mlmd.Execution(type_id=kind, last_known_state=state)
        _set(execution.custom_properties, properties)
        if state != State.CACHED:
            self._last |= {name: self._artifact(node, name, writes[name]) for name in writes}
        used = [(self._last[name], _event(mlmd.Event.INPUT, name)) for name in reads]
        used += [(self._last[name], _event(mlmd.Event.OUTPUT, name)) for name in writes]
        contexts = [
            mlmd.Context(type_id=self._type(mlmd.ContextType(name=kind)), name=name)
            for kind, name in (("pipeline_run", run), ("node", f"{self.pipeline}.{node}"))
        ]
        _, ids, _ = self._store.put_execution(
            execution, used, contexts, reuse_context_if_already_exist=True
        )
        for (artifact, _), made in zip(used, ids, strict=True):
            artifact.id = made

    def _type(self, kind: Any) -> int:
        key = type(kind).__name__, kind.name
        if key not in self._types:
            put = {
                "ExecutionType": self._store.put_execution_type,
                "ContextType": self._store.put_context_type,
                "ArtifactType": self._store.put_artifact_type,
            }[key[0]]
            self._types[key] = put(kind)
        return self._types[key]

    def _artifact(self, node: str, kind: str, facts: dict[str, Any]) -> mlmd.Artifact:
        uri = self.output / "artifacts" / node / kind
        artifact = mlmd.Artifact(type_id=self._type(mlmd.ArtifactType(name=kind)), uri=str(uri))
        _set(artifact.custom_properties, {"tfx_version": "1.16.0", "is_external": 0, **facts})
        if kind == "Examples":
            uri.mkdir(parents=True, exist_ok=True)
            index = {"splits": {"eval": {"0": 200}, "train": {"0": 700, "1": 300}}}
            (uri / "index.json").write_text(json.dumps(index))
        return artifact


def _event(kind: int, name: str) -> mlmd.Event:
    event = mlmd.Event(type=kind)
    event.path.steps.add().key = name.lower()
    event.path.steps.add().index = 0
    return event


def _set(properties: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        kind = {int: "int_value", float: "double_value", str: "string_value"}[type(value)]
        setattr(properties[name], kind, value)


def record(
    recorder: Recorder,
    run: str,
    *,
    fingerprint: str = FIRST,
    accuracy: float = 0.9,
    blessed: int = 1,
    config: dict[str, Any] | None = None,
    data: str = "/data",
    until: str = "Pusher",
    last: int = State.COMPLETE,
    cached: tuple[str, ...] = (),
) -> None:
    """Record a run up to the node `until`, which ends in the state `last`."""
    source = {"input_base": data, "ingest": json.dumps({"shard_mib": 128.0, "span": None})}
    resolved = {"input_fingerprint": fingerprint, "span": 2}
    pushed = {"pushed": 1, "pushed_version": run, "pushed_destination": f"/out/pushed/{run}"}
    steps: list[tuple[str, dict[str, Any], tuple[str, ...], dict[str, dict[str, Any]]]] = [
        ("ImageExampleGen", source, (), {"Examples": resolved}),
        ("Trainer", config or training(), ("Examples",), {"Model": {}}),
        (
            "Evaluator",
            {"eval_config": "{}"},
            ("Examples", "Model"),
            {"ModelBlessing": {"blessed": blessed}, "ModelEvaluation": {"split": "eval"}},
        ),
        (
            "ImageReport",
            {},
            ("Model", "ModelBlessing"),
            {"system.Metrics": {"accuracy": accuracy, "examples": 200.0}},
        ),
        (
            "Pusher",
            {"push_destination": "{}"},
            ("Model", "ModelBlessing"),
            {"PushedModel": pushed if blessed else {"pushed": 0}},
        ),
    ]
    for node, properties, reads, writes in steps:
        state = State.CACHED if node in cached else State.COMPLETE
        state = last if node == until else state
        # Only an execution that was done has what its driver found out.
        known = resolved if node == "ImageExampleGen" and state == State.COMPLETE else {}
        ended = state in {State.COMPLETE, State.CACHED}
        recorder.step(
            run,
            node,
            properties={**properties, **known},
            reads=reads,
            writes=writes if ended else {},
            state=state,
        )
        if node == until:
            return


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path / "out")


def runs_of(recorder: Recorder) -> list[Run]:
    return read_runs(str(recorder.output))


def test_what_a_run_was_given_and_gave(recorder: Recorder) -> None:
    record(recorder, "1")
    [run] = runs_of(recorder)
    assert (run.name, run.pipeline, run.state, run.node) == ("1", "images", "done", "Pusher")
    assert (run.data.folder, run.data.fingerprint, run.data.span) == ("/data", FIRST, 2)
    assert run.metrics == {"accuracy": 0.9, "examples": 200.0}
    assert (run.split, run.blessed, run.pushed, run.cached) == ("eval", True, "1", 0)
    assert run.settings["training.epochs"] == 20
    assert run.settings["ingest.shard_mib"] == 128.0
    assert run.changes == ()
    assert run.seconds is not None


def test_what_differs_from_the_run_before(recorder: Recorder) -> None:
    record(recorder, "1")
    record(recorder, "2", config=training(epochs=5, seed=1) | {"code_digest": "t2"})
    record(recorder, "3", config=training(epochs=5, seed=1) | {"code_digest": "t2"}, data="/b")
    record(recorder, "4", fingerprint=SECOND, data="/b")
    _, second, third, fourth = runs_of(recorder)
    assert second.changes == (
        Change("code of Trainer", "t1", "t2"),
        Change("training.epochs", 20, 5),
        Change("training.seed", None, 1),
    )
    assert third.changes == (Change("data", "/data", "/b"),)
    assert {change.name: (change.old, change.new) for change in fourth.changes} == {
        "code of Trainer": ("t2", "t1"),
        "training.epochs": (5, 20),
        "training.seed": (1, None),
        "images": (FIRST, SECOND),
    }


def test_a_node_is_compared_with_when_it_ran_last(recorder: Recorder) -> None:
    record(recorder, "1")
    record(recorder, "2", until="ImageExampleGen", last=State.FAILED)
    record(recorder, "3", config=training(epochs=5))
    assert runs_of(recorder)[2].changes == (Change("training.epochs", 20, 5),)


def test_runs_of_another_pipeline_are_compared_among_themselves(recorder: Recorder) -> None:
    record(recorder, "1")
    recorder.pipeline = "others"
    record(recorder, "2", config=training(epochs=1))
    recorder.pipeline = "images"
    record(recorder, "3")
    assert [(run.pipeline, run.changes) for run in runs_of(recorder)] == [
        ("images", ()),
        ("others", ()),
        ("images", ()),
    ]


ENDS: dict[str, tuple[str, int, str]] = {
    "an error": ("Trainer", State.FAILED, "failed"),
    "a kill, which leaves the step as it was": ("Trainer", State.RUNNING, "unfinished"),
    "a kill between two steps": ("Trainer", State.COMPLETE, "unfinished"),
    "an error of ingest, before anything is known": ("ImageExampleGen", State.FAILED, "failed"),
    "an error of the last step": ("Pusher", State.FAILED, "failed"),
}


@pytest.mark.parametrize(("node", "last", "state"), ENDS.values(), ids=ENDS.keys())
def test_a_run_that_came_to_an_end_too_early(
    recorder: Recorder, node: str, last: int, state: str
) -> None:
    record(recorder, "1", until=node, last=last)
    [run] = runs_of(recorder)
    assert (run.state, run.node, run.pushed) == (state, node, None)
    assert (run.seconds is None) == (state == "unfinished")
    assert run.data.fingerprint == ("" if node == "ImageExampleGen" else FIRST)


def test_results_from_the_cache_are_those_of_the_run(recorder: Recorder) -> None:
    record(recorder, "1")
    nodes = ("ImageExampleGen", "Trainer", "Evaluator", "ImageReport")
    record(recorder, "2", cached=nodes, last=State.CACHED)
    run = runs_of(recorder)[1]
    assert (run.state, run.cached, run.pushed, run.blessed) == ("done", 5, "1", True)
    assert (run.data.fingerprint, run.data.span) == (FIRST, 2)
    assert run.metrics["accuracy"] == 0.9
    assert run.changes == ()


def test_accuracy_is_compared_on_the_same_images_only(recorder: Recorder) -> None:
    record(recorder, "1", accuracy=0.9)
    record(recorder, "2", accuracy=0.5, fingerprint=SECOND)
    record(recorder, "3", accuracy=0.92)
    found = [run.accuracy_change for run in runs_of(recorder)]
    assert found == [None, None, pytest.approx(0.02)]


def test_a_model_that_was_not_blessed(recorder: Recorder) -> None:
    record(recorder, "1", blessed=0)
    [run] = runs_of(recorder)
    assert (run.state, run.blessed, run.pushed) == ("done", False, None)


def metric(name: str, *thresholds: dict[str, Any]) -> dict[str, Any]:
    config = {"class_name": "Counted", "config": json.dumps({"name": name})}
    return {**config, "per_slice_thresholds": list(thresholds)}


def threshold(slicing: dict[str, Any], **bounds: Any) -> dict[str, Any]:
    return {"slicing_specs": [slicing], "threshold": bounds}


SETTINGS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "sections of the configuration": (
        "Trainer",
        {"custom_config": '{"model": {"name": "cnn"}, "checkpoints": "/c"}'},
        {"checkpoints": "/c", "model.name": "cnn"},
    ),
    "no configuration": ("Pusher", {"custom_config": "null"}, {"Pusher.custom_config": None}),
    "what a driver found": ("ImageExampleGen", {"span": 3, "input_fingerprint": "x"}, {}),
    "text that is no JSON": ("A", {"run_fn": "a.b"}, {"A.run_fn": "a.b"}),
    "nested": (
        "A",
        {"x": '{"y": [{"z": 1}, 2], "l": [1, 2]}'},
        {
            "A.x.l": [1, 2],
            "A.x.y.0.z": 1,
            "A.x.y.1": 2,
        },
    ),
    "thresholds": (
        "Evaluator",
        {
            "eval_config": json.dumps(
                {
                    "slicing_specs": [{}, {"feature_keys": ["size"]}],
                    "metrics_specs": [
                        {
                            "metrics": [
                                metric(
                                    "accuracy",
                                    threshold(
                                        {},
                                        value_threshold={"lower_bound": 0.7},
                                        change_threshold={"absolute": -0.01},
                                    ),
                                    threshold(
                                        {"feature_values": {"class": "red"}},
                                        value_threshold={"lower_bound": 0.5},
                                    ),
                                ),
                                metric(
                                    "ece",
                                    threshold(
                                        {"feature_keys": ["size"]},
                                        value_threshold={"upper_bound": 0.1},
                                        change_threshold={"absolute": 0.02},
                                    ),
                                ),
                            ]
                        }
                    ],
                }
            )
        },
        {
            "evaluation.max_accuracy_drop": 0.01,
            "evaluation.min_accuracy": 0.7,
            "evaluation.slices": ["size"],
            "evaluation.thresholds.accuracy on class=red.at_least": 0.5,
            "evaluation.thresholds.ece on size.at_most": 0.1,
            "evaluation.thresholds.ece on size.max_worsening": 0.02,
        },
    ),
}


@pytest.mark.parametrize(("node", "properties", "named"), SETTINGS.values(), ids=SETTINGS.keys())
def test_settings_have_the_names_that_a_user_knows(
    node: str, properties: dict[str, Any], named: dict[str, Any]
) -> None:
    assert name_settings(node, properties) == named


def test_lineage_goes_back_to_the_images(recorder: Recorder) -> None:
    record(recorder, "1")
    # The cache and a later run must not be taken for what made the model.
    record(recorder, "2", cached=("ImageExampleGen", "Trainer"), last=State.CACHED)
    record(recorder, "3", config=training(epochs=5))
    lineage = trace(str(recorder.output), "1")
    assert (lineage.version, lineage.destination) == ("1", "/out/pushed/1")
    nodes = {step.node: step for step in lineage.steps}
    assert set(nodes) == {"Pusher", "Trainer", "Evaluator", "ImageExampleGen", "ImageReport"}
    assert {step.run for step in lineage.steps} == {"1"}
    assert nodes["Trainer"].settings["training.epochs"] == 20
    [examples] = nodes["Trainer"].inputs["examples"]
    assert lineage.items[examples].examples == {"eval": 200, "train": 1000}
    assert lineage.items[examples].facts == {"input_fingerprint": FIRST, "span": 2}
    assert lineage.maker(examples) == nodes["ImageExampleGen"]
    [blessing] = nodes["Pusher"].inputs["modelblessing"]
    assert lineage.items[blessing].facts == {"blessed": 1}
    [metrics] = nodes["ImageReport"].outputs["system.metrics"]
    assert lineage.items[metrics].facts["accuracy"] == 0.9


@pytest.mark.parametrize("wanted", ["2", "/out/pushed/2", "/out/pushed/2/"])
def test_a_model_is_named_by_its_version_or_its_folder(recorder: Recorder, wanted: str) -> None:
    record(recorder, "1")
    record(recorder, "2")
    assert trace(str(recorder.output), wanted).version == "2"


def test_a_model_that_nobody_pushed_is_one_sentence(recorder: Recorder) -> None:
    record(recorder, "1")
    record(recorder, "2", blessed=0)
    with pytest.raises(UserError, match=r"has pushed 2; versions pushed: 1\.$"):
        trace(str(recorder.output), "2")


def test_images_that_are_deleted_leave_their_lineage(recorder: Recorder) -> None:
    record(recorder, "1")
    for file in recorder.output.rglob("index.json"):
        file.unlink()
    lineage = trace(str(recorder.output), "1")
    assert all(not item.examples for item in lineage.items.values())


@pytest.mark.parametrize("content", [None, b"", b"no database"], ids=["none", "empty", "other"])
def test_a_folder_without_runs_is_one_sentence_and_stays_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    file = Path(Layout(str(tmp_path)).metadata)
    if content is not None:
        file.write_bytes(content)
    assert local_runner.main(["runs", "--output", str(tmp_path)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "no runs" in line
    assert (file.read_bytes() if file.exists() else None) == content


def test_reading_changes_nothing(recorder: Recorder) -> None:
    record(recorder, "1")
    file = Path(Layout(str(recorder.output)).metadata)
    before = file.read_bytes(), sorted(os.listdir(recorder.output))
    runs_of(recorder)
    trace(str(recorder.output), "1")
    assert (file.read_bytes(), sorted(os.listdir(recorder.output))) == before


def test_the_table_has_a_run_a_row(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    record(recorder, "1")
    record(recorder, "2", config=training(epochs=5) | {"code_digest": "t2"}, accuracy=0.88)
    record(recorder, "3", blessed=0)
    record(recorder, "4", until="Trainer", last=State.RUNNING)
    record(recorder, "5", until="Trainer", last=State.FAILED, cached=("ImageExampleGen",))
    record(recorder, "6", until="Trainer", last=State.RUNNING)
    assert local_runner.main(["runs", "--output", str(recorder.output)]) == 0
    text = capsys.readouterr().out
    words = " ".join(text.split())
    assert "Pipeline images, images /data" in text
    assert "training.epochs 20 → 5" in text
    assert "code of Trainer" in text
    assert "0.8800, -0.0200" in text
    assert "not blessed" in text
    assert "stopped at" in text
    assert "failed at" in text
    assert "runs or was stopped" in text
    assert "1/2" in text
    assert words.count("aaaaaaaa") == 6
    assert words.count("1,200 files") == 6


def test_json_is_for_programs(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    record(recorder, "1")
    record(recorder, "2", config=training(epochs=5))
    show_runs(str(recorder.output), as_json=True)
    runs = json.loads(capsys.readouterr().out)
    assert [run["name"] for run in runs] == ["1", "2"]
    assert runs[1]["changes"] == [{"name": "training.epochs", "old": 20, "new": 5}]
    arguments = ["runs", "--output", str(recorder.output), "--lineage", "2", "--json"]
    assert local_runner.main(arguments) == 0
    lineage = json.loads(capsys.readouterr().out)
    assert lineage["steps"][0]["node"] == "Pusher"


def test_the_tree_shows_each_step_once(
    recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    record(recorder, "1")
    show_lineage(str(recorder.output), "1")
    text = capsys.readouterr().out
    for node in ("Pusher", "Trainer", "Evaluator", "ImageExampleGen", "ImageReport"):
        made = [line for line in text.splitlines() if f"by {node} #" in line]
        assert sum("see there" not in line for line in made) == 1, node
    assert "input_fingerprint 1,200 files aaaaaaaa, span 2" in text
    assert "200 eval, 1,000 train" in text
    assert "training: epochs 20" in text
    assert "accuracy 0.9" in text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_nothing_is_left_out_on_a_narrow_terminal_nor_does_a_name_act_there(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(recorder, "1", data="/data\x1b[2J[bold]")
    record(recorder, "2", data="/data\x1b[2J[red]")
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    show_runs(str(recorder.output))
    text = terminal.getvalue()
    assert "\x1b[2J" not in text
    assert "/data\\x1b[2J[red]" in text
    assert "0.9000, +0.0000" in text
    assert "0/5" in text


FINGERPRINTS = {
    FIRST: "1,200 files aaaaaaaa",
    "": "",
    "x" * 30: "x" * 20,
    "files:a,sha256:b": "files:a,sha256:b",
}


@pytest.mark.parametrize(("fingerprint", "short"), FINGERPRINTS.items())
def test_fingerprints_in_a_few_words(fingerprint: str, short: str) -> None:
    assert run_text.shorten_fingerprint(fingerprint) == short

"""Runs of a pipeline of two small steps: what is shown, recorded, and taken from the cache."""

import contextlib
import dataclasses
import shutil
import sqlite3
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.orchestration import metadata
from tfx.orchestration.metadata import sqlite_metadata_connection_config
from tfx.orchestration.pipeline import Pipeline
from tfx.types import standard_artifacts

from components.contract.errors import ConfigurationError, DataError, StorageError
from components.contract.model_files import PUSHED_CARD
from components.images.options import TransformConfig
from components.trainer.config.model import ModelConfig
from pipeline_def.config.config import Config
from pipeline_def.layout import Layout
from pipeline_def.local.execution import execute
from pipeline_def.local.first_look import FirstLook
from pipeline_def.local.output.integrity import drop_incomplete, list_complete, note_files
from pipeline_def.local.runner import describe_output
from pipeline_def.runs.record import RunRecord, Step, describe_failure, read_records
from tests.files import write_files


@component
def Produce(made: OutputArtifact[standard_artifacts.Model]) -> None:
    Path(made.uri, "weights").write_text("1234")
    made.set_int_custom_property("number", 7)
    made.set_string_custom_property("curve", "x" * 2_000)


@component
def Consume(used: InputArtifact[standard_artifacts.Model], failure: Parameter[str]) -> None:
    if failure == "mistake":
        raise DataError("The images are gone.")
    if failure == "bug":
        raise ValueError("Boom.\nMore of it.")
    if failure == "Ctrl-C":
        raise KeyboardInterrupt


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    def create_pipeline(config: Config, *, metadata: str, listing: str) -> Pipeline:
        produce = Produce()
        consume = Consume(used=produce.outputs["made"], failure=config.name)
        layout = Layout(config.output)
        return Pipeline(
            "small",
            pipeline_root=layout.artifacts,
            components=[produce, consume],
            enable_cache=True,
            metadata_connection_config=sqlite_metadata_connection_config(metadata),
            beam_pipeline_args=config.beam_pipeline_args,
        )

    monkeypatch.setattr("pipeline_def.pipeline.create_pipeline", create_pipeline)
    return Config(data="/images", name="fine", output=str(tmp_path))


def run(config: Config) -> RunRecord:
    record = execute(config)
    assert record is not None
    return record


def newest(config: Config) -> RunRecord:
    return read_records(config.output)[-1]


def states(record: RunRecord) -> list[str]:
    return [step.state for step in record.steps.values()]


def test_a_run_and_the_same_again_from_the_cache(
    config: Config, capfd: pytest.CaptureFixture[str]
) -> None:
    # Metadata without tables are filled.
    Path(Layout(config.output).metadata).touch()
    first = run(config)
    assert first == newest(config)
    assert (first.state, first.error, states(first)) == ("done", "", ["done", "done"])
    assert first.configuration["data"] == "/images"
    # Its variables may hold secrets.
    assert "kubeflow" not in first.configuration
    model = first.steps["Produce"].outputs["made"]
    assert (model.type, model.properties["number"]) == ("Model", 7)
    assert "curve" not in model.properties
    assert first.steps["Consume"].inputs == {"used": [model.uri]}

    again = run(config)
    assert states(again) == ["cached", "cached"]
    assert again.steps["Produce"].outputs["made"].uri == model.uri
    assert again.steps["Produce"].made_by == first.id
    shown = capfd.readouterr()
    assert shown.out.count("unchanged, taken from the cache") == 2
    assert shown.err == ""


def test_a_wrong_network_is_an_error_before_the_first_step(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_network.py").write_text("def build(size, classes):\n    return {}\n")
    monkeypatch.syspath_prepend(tmp_path)
    model, transform = ModelConfig(build_fn="my_network.build"), TransformConfig(size=32)
    seen = cast(FirstLook, SimpleNamespace(classes=2, listing=""))
    config = dataclasses.replace(config, model=model, transform=transform)
    with pytest.raises(ConfigurationError, match="must return a model of tf_keras"):
        execute(config, seen=seen)
    assert newest(config).state == "failed"
    assert not newest(config).steps
    (tmp_path / "my_network.py").write_text("def build(size, classes):\n    raise KeyError(7)\n")
    with pytest.raises(ConfigurationError, match="KeyError: 7"):
        execute(config, seen=seen)


def cut_file(folder: Path) -> None:
    (folder / "weights").write_text("12")


def test_a_moved_output_stays_cached(
    config: Config, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first = run(config)
    moved = Config(data=config.data, name=config.name, output=f"{tmp_path}, moved é")
    shutil.move(tmp_path, moved.output)
    again = run(moved)
    assert states(again) == ["cached", "cached"]
    assert again.steps["Produce"].made_by == first.id
    assert f"results made in {tmp_path} are now read from {moved.output}." in capfd.readouterr().out
    folder = Path(again.steps["Produce"].outputs["made"].uri)
    assert folder.is_relative_to(moved.output)
    cut_file(folder)
    last = run(moved)
    assert states(last) == ["done", "done"]
    assert not tmp_path.exists()


@pytest.mark.slow
def test_what_is_lost_is_made_again(config: Config, capfd: pytest.CaptureFixture[str]) -> None:
    lost = run(config).steps["Produce"].outputs["made"].uri
    Path(Layout(config.output).files).write_text('{"uri": "cut sho')
    execute(config)
    for lose in (lambda folder: (folder / "weights").write_text("4321"), shutil.rmtree):
        lose(Path(lost))
        again = run(config)
        assert states(again) == ["done", "done"]
        assert f"{lost} is missing or damaged and will be rebuilt." in capfd.readouterr().out
        lost = again.steps["Produce"].outputs["made"].uri
        assert Path(lost, "weights").read_text() == "1234"
    assert states(run(config)) == ["cached", "cached"]


def test_a_step_that_was_killed_does_not_run_for_ever(config: Config) -> None:
    execute(config)
    store = sqlite3.connect(Layout(config.output).metadata)
    running = "SELECT count(*) FROM Execution WHERE last_known_state = 2"
    with contextlib.closing(store):
        store.execute("UPDATE Execution SET last_known_state = 2")
        store.commit()
        half = Path(Layout(config.output).artifacts, "Consume", "other", "2")
        half.mkdir(parents=True)
        assert store.execute(running).fetchall() == [(2,)]
        again = run(config)
        assert store.execute(running).fetchall() == [(0,)]
    assert states(again) == ["done", "done"]
    assert not half.exists()
    assert [*Path(Layout(config.output).artifacts).glob("Produce/made/1/weights")]


def publish_pushes(layout: Layout, versions: dict[str, Path]) -> None:
    """Leave the artifacts of pushes: folder → version, which has been written."""
    pushes = []
    for folder, version in versions.items():
        pushed = standard_artifacts.PushedModel()
        pushed.uri = folder
        pushed.set_string_custom_property("pushed_destination", str(version))
        pushes.append(pushed)
    with metadata.Metadata(sqlite_metadata_connection_config(layout.metadata)) as handle:
        handle.publish_artifacts(pushes)
    outputs = {artifact.uri: describe_output(artifact) for artifact in pushes}
    note_files(layout, Step("done", outputs=outputs))


def test_a_version_has_the_formats_and_the_card_of_its_last_push(tmp_path: Path) -> None:
    layout, version = Layout(str(tmp_path)), tmp_path / "version"
    folders = [str(tmp_path / name) for name in ("with formats", "without")]
    for folder in (*folders, str(version)):
        Path(folder).mkdir()
    for name in ("saved_model.pb", PUSHED_CARD):
        (version / name).touch()
    publish_pushes(layout, dict.fromkeys(folders, version))
    assert drop_incomplete(layout) == []
    (version / PUSHED_CARD).write_text("completed by a user")
    assert list_complete(layout) == {folders[1]}
    (version / PUSHED_CARD).unlink()
    assert drop_incomplete(layout) == [folders[1]]


@pytest.mark.slow
def test_a_pushed_model_that_is_gone_is_pushed_again(config: Config, tmp_path: Path) -> None:
    layout = Layout(str(tmp_path))
    names = ("kept", "gone", "no card", "damaged", "changed")
    files = {"formats/float.tflite": "a small version", "saved_model.pb": "", PUSHED_CARD: ""}
    for name in names:
        write_files(tmp_path / name, files)
    publish_pushes(layout, {str(tmp_path / name): tmp_path / name for name in names})
    (tmp_path / "gone" / "saved_model.pb").unlink()
    (tmp_path / "no card" / PUSHED_CARD).unlink()
    (tmp_path / "damaged" / "formats" / "float.tflite").write_text("a small")
    (tmp_path / "changed" / "formats" / "float.tflite").write_text("a small Version")
    assert drop_incomplete(layout) == [str(tmp_path / name) for name in sorted(names[1:])]
    assert drop_incomplete(layout) == []

    with contextlib.closing(sqlite3.connect(layout.metadata)) as store, store:
        store.execute("DELETE FROM MLMDEnv")
    advice = r"metadata.sqlite cannot be used: .*\. Move it away, and run again"
    with pytest.raises(StorageError, match=advice):
        execute(config)


@pytest.mark.parametrize(
    ("how", "error", "state", "said"),
    [
        ("mistake", DataError, "failed", "The images are gone."),
        ("Ctrl-C", KeyboardInterrupt, "stopped", ""),
    ],
)
def test_what_stops_a_run_is_recorded(
    config: Config, how: str, error: type[BaseException], state: str, said: str
) -> None:
    with pytest.raises(error):
        execute(dataclasses.replace(config, name=how))
    record = newest(config)
    assert (record.state, record.error, states(record)) == (state, said, ["done", state])


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--direct_num_workers=x", "argument --direct_num_workers: invalid int value: 'x'."),
        ("--runner=Foo", "Unexpected pipeline runner: Foo. Valid values are "),
        ("--runner=foo.Bar", "No module named 'foo'."),
    ],
)
def test_options_that_beam_refuses_stop_a_run_at_once(
    config: Config, option: str, said: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        execute(dataclasses.replace(config, beam_pipeline_args=[option]))
    assert str(caught.value).startswith(f"beam_pipeline_args: {said}")
    assert states(newest(config)) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Boom.\nMore of it.", "Boom."),
        ("", "ValueError"),
        (
            "Graph execution error:\n\nDetected at node a/Decode\nInvalid PNG\n\t [[{{node a}}]]",
            "Invalid PNG",
        ),
        ("Graph execution error:", "Graph execution error:"),
    ],
)
def test_the_sentence_of_an_error(text: str, said: str) -> None:
    assert describe_failure(ValueError(text)) == said


def test_a_bug_is_one_sentence_and_its_traceback_is_in_the_log(
    config: Config, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    assert execute(dataclasses.replace(config, name="bug")) is None
    record = newest(config)
    assert (record.state, record.error, states(record)) == ("failed", "Boom.", ["done", "failed"])
    *_, sentence, where = capfd.readouterr().err.splitlines()
    assert sentence == "local_runner.py: failed in Consume: Boom."
    [log] = Path(Layout(config.output).logs).iterdir()
    assert where.endswith(str(log))
    assert "Traceback" in log.read_text()

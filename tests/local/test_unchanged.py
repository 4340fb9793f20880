"""What makes a run load TFX: other options, images, code or lookups, and results that are gone."""

import contextlib
import dataclasses
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tfx.orchestration import metadata
from tfx.orchestration.metadata import sqlite_metadata_connection_config
from tfx.types import artifact

from components.contract.configuration import to_dict
from components.contract.properties import EXAMPLES_KEY_PROPERTY, LookupInput
from components.images.options import TransformConfig
from components.ingest.config import IngestConfig
from components.ingest.source.corrections import COLUMNS
from components.predict.files import PredictConfig
from components.trainer.config.input import AugmentationConfig
from components.trainer.config.model import ModelConfig
from components.trainer.config.training import TrainingConfig
from components.validation.config import ValidationConfig
from components.validation.lookup import ENTRY_FILE
from pipeline_def.config.config import Config
from pipeline_def.layout import Layout
from pipeline_def.local.output.integrity import note_files
from pipeline_def.local.preparation import prepare
from pipeline_def.local.runner import describe_output
from pipeline_def.local.unchanged import digest_program, find_unchanged, list_again
from pipeline_def.pipeline import create_pipeline
from pipeline_def.runs.record import RunRecord, Step, read_records, write_record
from tests.evaluation.saved_model_sample import saved_model
from tests.pictures import encode, picture, write_folder

IMAGES, MANIFEST, CORRECTIONS = "spans/span-1", "labels.csv", "corrections.csv"
# Beside the folder that is restored, which changes the times of its files.
PREDICTED = "../predicted"
LABELS_SCHEMA = """
feature { name: "image/encoded" type: BYTES }
feature { name: "image/class/text" type: BYTES }
string_domain { name: "image/class/text" value: "blue" value: "green" value: "red" }
"""
ROW = f"{'0' * 64},blue/001.jpeg,relabel,blue,red,,,"


def describe(config: Config) -> dict[str, object]:
    return json.loads(json.dumps(to_dict(config)))  # type: ignore[no-any-return]


def again(config: Config) -> RunRecord | None:
    """Prepare the same run again, and return what it would take from the cache."""
    seen = prepare(config)
    program = digest_program(seen.config)
    return find_unchanged(seen.config, describe(seen.config), program=program, listing=seen.listing)


def record_run(config: Config) -> None:
    """Leave the output of a run: the artifacts of each step, a file in each, and its record."""
    layout = Layout(config.output)
    seen = prepare(config)
    pipeline = create_pipeline(seen.config, metadata=layout.metadata, listing=seen.listing)
    steps: dict[str, Step] = {}
    uris: dict[int, str] = {}
    Path(layout.statistics, "2").mkdir(parents=True)
    with metadata.Metadata(sqlite_metadata_connection_config(layout.metadata)) as handle:
        for node in pipeline.components:
            step_outputs = {}
            for name, channel in node.outputs.items():
                item: artifact.Artifact = channel.type()
                item.uri = uris[id(channel)] = f"{layout.artifacts}/{node.id}/{name}/1"
                item.set_string_custom_property(EXAMPLES_KEY_PROPERTY, "key")
                Path(item.uri).mkdir(parents=True)
                Path(item.uri, "facts").write_text("some facts")
                handle.publish_artifacts([item])
                step_outputs[name] = describe_output(item)
            inputs = {
                name: uris[id(channel)]
                for name, channel in node.inputs.items()
                if id(channel) in uris
            }
            properties = {}
            if look_up := getattr(node.driver_class, "lookup_function", None):
                given = {name: LookupInput(uri, 0, "key") for name, uri in inputs.items()}
                resolved = look_up(given, node.exec_properties)
                properties = {**node.exec_properties, **resolved}
            steps[node.id] = Step(
                "done",
                inputs={k: [v] for k, v in inputs.items()},
                outputs=step_outputs,
                properties=properties,
            )
            note_files(layout, steps[node.id])
    record = RunRecord(
        *("1", "images", "2026-11-22T10:00:00.000+00:00", describe(seen.config), {}, {}),
        program=digest_program(seen.config),
        state="done",
        steps=steps,
    )
    write_record(record, config.output)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A span of images that a manifest names, corrections, a schema, and images to predict."""
    home = tmp_path_factory.mktemp("home")
    write_folder(home / IMAGES, each=12)
    paths = sorted(path.relative_to(home / IMAGES) for path in (home / IMAGES).rglob("*.*"))
    rows = [f"{path},{path.parent.name}" for path in paths[:-1]]
    (home / MANIFEST).write_text("\n".join(["path,label", *rows]))
    (home / CORRECTIONS).write_text(f"{','.join(COLUMNS)}\n{ROW}\n")
    (home / "schema.pbtxt").write_text(LABELS_SCHEMA)
    write_folder(home / PREDICTED, each=2)
    config = Config(
        data=f"{home}/spans/span-{{SPAN}}",
        output=f"{home}/out",
        ingest=IngestConfig(
            manifest=f"{home}/{MANIFEST}",
            corrections=f"{home}/{CORRECTIONS}",
            fingerprint="content",
        ),
        validation=ValidationConfig(schema=f"{home}/schema.pbtxt"),
        predict=PredictConfig(folder=f"{home}/{PREDICTED}"),
        model=ModelConfig(name="cnn", weights="none"),
    )
    record_run(config)
    return config


@pytest.fixture
def config(recorded: Config) -> Iterator[Config]:
    """The run, whose files are restored afterwards."""
    home = Path(recorded.output).parent
    shutil.copytree(home, f"{home}-kept")
    assert again(recorded)
    yield recorded
    shutil.rmtree(home)
    shutil.move(f"{home}-kept", home)
    (home / PREDICTED / "new.jpeg").unlink(missing_ok=True)


def test_the_same_again_takes_every_step_from_the_last_run(config: Config) -> None:
    last = again(config)
    assert last
    assert last == read_records(config.output)[-1]
    steps = [(name, step.state, step.outputs) for name, run in list_again(last) for step in [run()]]
    assert steps == [(name, "cached", step.outputs) for name, step in last.steps.items()]


def edit(name: str, old: str, new: str) -> Callable[[Path], object]:
    def change(home: Path) -> None:
        text = (home / name).read_text()
        assert old in text
        (home / name).write_text(text.replace(old, new))

    return change


def add(name: str) -> Callable[[Path], object]:
    return lambda home: (home / name).write_bytes(encode(picture(99), "JPEG"))


def write(name: str, text: str) -> Callable[[Path], object]:
    return lambda home: (home / name).write_text(text)


def query(text: str) -> Callable[[Path], object]:
    def change(home: Path) -> None:
        with contextlib.closing(sqlite3.connect(home / "out" / "metadata.sqlite")) as store, store:
            store.execute(text)

    return change


def end_later_run(state: str) -> Callable[[Path], object]:
    def change(home: Path) -> None:
        [record] = read_records(str(home / "out"))
        later = {"id": "2", "started": "2026-11-23T10:00:00.000+00:00", "state": state}
        write_record(dataclasses.replace(record, **later), str(home / "out"))  # type: ignore[arg-type]

    return change


def add_span(home: Path) -> None:
    shutil.copytree(home / IMAGES, home / "spans/span-2")


def add_statistics(home: Path) -> None:
    facts = {"time": 1, "span": 0, "digest": "of others", EXAMPLES_KEY_PROPERTY: "other"}
    (home / "out/statistics/1").mkdir(parents=True)
    (home / "out/statistics/1" / ENTRY_FILE).write_text(json.dumps(facts))


def push_another(home: Path) -> None:
    saved_model(home / "out/pushed/5", weights=b"of another model")
    saved_model(home / "out/artifacts/Trainer/model/1/Format-Serving", weights=b"of this one")


TRAINER = "out/artifacts/Trainer/model/1"
CHANGES: dict[str, Callable[[Path], object]] = {
    "an image has other content": add(f"{IMAGES}/blue/001.jpeg"),
    "an image more": edit(MANIFEST, "\nblue/001.jpeg", "\nred/011.jpeg,red\nblue/001.jpeg"),
    "an image is skipped now": edit(MANIFEST, "blue/001.jpeg,blue\n", ""),
    "another label": edit(MANIFEST, "blue/001.jpeg,blue", "blue/001.jpeg,red"),
    "another decision": edit(CORRECTIONS, "relabel,blue,red", "remove,blue,"),
    "a new span": add_span,
    "another schema": edit("schema.pbtxt", "feature", " feature"),
    "an image more to predict": add(f"{PREDICTED}/new.jpeg"),
    "statistics of other examples": add_statistics,
    "the kept statistics are lost": lambda home: shutil.rmtree(home / "out/statistics"),
    "another current model": push_another,
    "a pushed model that is damaged": lambda home: saved_model(home / "out/pushed/5", weights=b""),
    "a folder is lost": lambda home: shutil.rmtree(home / TRAINER),
    "a file is lost": lambda home: (home / TRAINER / "facts").unlink(),
    "a file is damaged": write(f"{TRAINER}/facts", "other facts"),
    "files were not noted": lambda home: (home / "out/artifacts/files.jsonl").unlink(),
    "a result was pruned": query("UPDATE Artifact SET state = 4 WHERE uri LIKE '%/Trainer/%'"),
    "a step was killed": query(
        "INSERT INTO Execution (type_id, last_known_state) SELECT id, 2 FROM Type LIMIT 1"
    ),
    "no metadata": lambda home: (home / "out/metadata.sqlite").unlink(),
    "the last run was stopped": end_later_run("stopped"),
    "the last run has failed": end_later_run("failed"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_tfx_decides_after(config: Config, change: Callable[[Path], object]) -> None:
    change(Path(config.output).parent)
    assert again(config) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"training": TrainingConfig(epochs=3)},
        {"cache": False},
        {"ingest": IngestConfig(fingerprint="content")},
        {"predict": PredictConfig()},
        {"augmentation": AugmentationConfig(fn="tests.local.test_unchanged.again")},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_tfx_decides_with_other_options(config: Config, changed: dict[str, Any]) -> None:
    assert again(dataclasses.replace(config, **changed)) is None


def test_tfx_decides_with_another_program(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline_def.local.unchanged.program_digest", lambda *_: "another")
    assert again(config) is None


@pytest.mark.slow
def test_the_pipeline_carries_the_content_of_a_schema_not_its_place(tmp_path: Path) -> None:
    target = tmp_path / "schema.pbtxt"

    def properties(text: str | None) -> dict[str, object]:
        target.write_text(text or "")
        config = Config(
            data="images",
            output=str(tmp_path),
            transform=TransformConfig(size=32),
            validation=ValidationConfig(schema=text and str(target)),
        )
        [step] = (node for node in create_pipeline(config).components if node.id == "SchemaGen")
        return dict(step.exec_properties)

    carried = properties(LABELS_SCHEMA)
    assert properties(f"# Only a comment more.\n{LABELS_SCHEMA}") == carried
    assert properties(LABELS_SCHEMA.replace("green", "lime")) != carried
    assert str(target) not in str(carried)
    assert "curated_schema" not in properties(None)

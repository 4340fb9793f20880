import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format
from sklearn import metrics
from tfx import types
from tfx.orchestration.kubeflow.v2 import compiler_utils
from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_entrypoint_utils
from tfx.types import standard_artifacts

from components.contract.artifact_files import CARD_FILE, METRICS_FILE, PAGE_FILE
from components.contract.artifacts import (
    ClassificationMetrics,
    Html,
    ImageRejects,
    ImageSuspects,
    Markdown,
    Metrics,
)
from components.contract.configuration import to_json
from components.contract.example import DUPLICATES_FILE, REJECTS_FILE, SLICINGS, SUMMARY_FILE
from components.contract.model_files import HISTORY_FILE, INPUT_FILE, MODEL_FILE, TRAINING_FILE
from components.contract.properties import (
    CONFIG_PROPERTY,
    FOLDER_PROPERTY,
    MAJORITY_PROPERTY,
    SPLIT_PROPERTY,
)
from components.contract.suspects import SUSPECTS_FILE
from components.evaluation.prediction_writer import join_parts, open_part
from components.images.options import TransformConfig
from components.images.thumbnails import make_thumbnail
from components.ingest.config import IngestConfig
from components.metrics.classification_metrics import measure
from components.metrics.evaluation_files import Judgment, Verdict, write_judgment
from components.metrics.metric_table import METRICS
from components.metrics.prediction_file import read_predictions
from components.metrics.predictions import Predictions
from components.report.component import ImageReport
from components.report.executor import Executor
from components.report.facts import MATRIX_CLASSES as MOST_CLASSES
from components.report.metrics_file import (
    CLASSIFICATION_FILE,
    set_classification,
    set_metrics,
)
from components.report.pictures.source_pictures import show_rejects
from pipeline_def.config.config import Config
from tests import nodes
from tests.evaluation.predictions_sample import make_predictions
from tests.pictures import encode, picture
from tests.report.samples.records import LABELS, SIZE, Record, make_records, write_splits

NASTY = ("<script>alert(1)</script>", "\"quoted\" & 'so'", "日本語", "قطة")
OUTPUTS: dict[str, tuple[type[types.Artifact], str]] = {
    "html": (Html, PAGE_FILE),
    "metrics": (Metrics, METRICS_FILE),
    "classification": (ClassificationMetrics, CLASSIFICATION_FILE),
    "card": (Markdown, CARD_FILE),
    "suspects": (ImageSuspects, SUSPECTS_FILE),
}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, types.Artifact]:
    """Outputs of the earlier steps; the model predicts blue for every fourth picture."""
    folder = tmp_path_factory.mktemp("report")
    records = make_records(20)
    examples = make_artifact(standard_artifacts.Examples, folder / "examples")
    write_splits(folder / "examples", {"train": records, "eval": records})
    examples.set_string_custom_property(FOLDER_PROPERTY, str(folder))
    examples.set_string_custom_property(CONFIG_PROPERTY, to_json(IngestConfig()))
    transformed = make_artifact(standard_artifacts.Examples, folder / "transformed")
    write_splits(folder / "transformed", {"train": records})
    anomalies = make_artifact(standard_artifacts.ExampleAnomalies, folder)
    anomalies.split_names = "[]"
    return {
        "examples": examples,
        "rejects": write_findings(folder / "rejects"),
        "anomalies": anomalies,
        "transformed_examples": transformed,
        "model_run": write_model_run(folder / "model_run"),
        "evaluation": write_evaluation(folder / "evaluation", records),
    }


def make_artifact(kind: type[types.Artifact], folder: Path) -> types.Artifact:
    artifact = kind()
    artifact.uri = str(folder)
    return artifact


def write_findings(folder: Path) -> types.Artifact:
    folder.mkdir()
    reject = {"path": "red/broken.jpg", "category": "not an image", "reason": "no known format"}
    (folder / REJECTS_FILE).write_text(json.dumps(reject) + "\n")
    (folder / DUPLICATES_FILE).write_text("")
    (folder / SUMMARY_FILE).write_text(json.dumps({"files": 61, "rejected": 1}))
    return make_artifact(ImageRejects, folder)


def write_evaluation(folder: Path, records: Sequence[Record]) -> types.Artifact:
    """Write predictions, verdict and thresholds, without TFMA's files."""
    probabilities = np.full((len(records), len(LABELS)), 0.1, np.float32)
    for place, record in enumerate(records):
        probabilities[place, record.label_id if place % 4 else LABELS.index("blue")] = 0.8
    labels = [label.encode() for label in LABELS]
    of_records = [labels[record.label_id] for record in records]
    texts = {
        "filename": [record.filename.encode() for record in records],
        "label": of_records,
        **dict.fromkeys(SLICINGS, [b"all"] * len(records)),
        "class": of_records,
    }
    with open_part(str(folder), "shard", [labels]) as part:
        part.add(texts, [probabilities])
    join_parts(str(folder))
    verdict = Verdict("blessed", "Blessed: good.", ["good"])
    write_judgment(str(folder), Judgment(verdict, {"accuracy": "at least 0.5"}))
    evaluation = make_artifact(standard_artifacts.ModelEvaluation, folder)
    evaluation.set_string_custom_property(SPLIT_PROPERTY, "eval")
    evaluation.set_float_custom_property(MAJORITY_PROPERTY, 1 / 3)
    return evaluation


def write_model_run(folder: Path) -> types.Artifact:
    whole = asdict(Config(transform=TransformConfig(size=SIZE)))
    sections = ("transform", "input", "augmentation", "model", "training")
    config = {name: whole[name] for name in sections}
    config["augmentation"]["flip"] = True
    folder.mkdir()
    curve = [0.9, 0.5, 0.4]
    names = ("loss", "val_loss", "accuracy", "val_accuracy", "images_per_second")
    history = {**dict.fromkeys(names, curve), "input_wait_fraction": [0.1, 0.2, 0.3]}
    phase = {"name": "train", "epochs": 3, "diverged": False, "on_features": False}
    training = {
        "started": "2026-01-02T03:04:05+00:00",
        "seconds": 6.0,
        "config": config,
        "phases": [phase],
        "exported": "train",
        **dict.fromkeys(("calibration", "known", "folds", "search")),
    }
    (folder / HISTORY_FILE).write_text(json.dumps(history))
    (folder / INPUT_FILE).write_text(json.dumps({"advice": None}))
    (folder / TRAINING_FILE).write_text(json.dumps(training))
    (folder / MODEL_FILE).write_text(json.dumps({"parameters": 131_402, "bytes": 720_000}))
    artifact = standard_artifacts.ModelRun()
    artifact.uri = str(folder)
    return artifact


def run(
    given: dict[str, types.Artifact], folder: Path, *, local: bool = True
) -> dict[str, types.Artifact]:
    """Run the executor, and return its outputs; in a local run they are folders."""
    outputs: dict[str, types.Artifact] = {name: kind() for name, (kind, _) in OUTPUTS.items()}
    for name, artifact in outputs.items():
        artifact.uri = str(folder / name)
        if local:
            (folder / name).mkdir(parents=True)
    Executor().Do(
        {name: [artifact] for name, artifact in given.items()},
        {name: [artifact] for name, artifact in outputs.items()},
        {
            "pipeline": "colours",
            "code": "c0de",
            "preview_fn": "components.trainer.input.preview.preview",
        },
    )
    return outputs


def on_kubeflow(artifact: types.Artifact) -> dict[str, Any]:
    """Return the metadata that TFX's entrypoint passes to Kubeflow's launcher."""
    runtime = kubeflow_v2_entrypoint_utils.to_runtime_artifact(artifact, {})
    metadata: dict[str, Any] = json.loads(json_format.MessageToJson(runtime))["metadata"]
    return metadata


def check_confusion_matrix(matrix: dict[str, Any]) -> None:
    """The checks of `validateConfusionMatrix` in Kubeflow's frontend."""
    names = [spec["displayName"] for spec in matrix["annotationSpecs"]]
    assert all(isinstance(name, str) for name in names)
    assert len(matrix["rows"]) == len(names)
    for row in matrix["rows"]:
        assert len(row["row"]) == len(names)
        assert all(isinstance(count, int | float) for count in row["row"])


@pytest.mark.slow
def test_page_metrics_and_card_of_a_run(given: dict[str, types.Artifact], tmp_path: Path) -> None:
    outputs = run(given, tmp_path)
    model = read_predictions(given["evaluation"].uri).candidate
    predicted = model.probabilities.argmax(axis=1)
    mistakes = int((predicted != model.ids).sum())
    assert 0 < mistakes < len(predicted) / 2
    file = json.loads((tmp_path / "metrics" / METRICS_FILE).read_text())
    assert file["metrics"].keys() == set(METRICS)
    accuracy = metrics.accuracy_score(model.ids, predicted)
    assert file["metrics"]["accuracy"]["value"] == pytest.approx(accuracy, abs=1e-9)
    low, high = file["metrics"]["accuracy"]["interval"]
    assert low < accuracy < high
    assert file["metrics"]["accuracy"]["baseline"] is None
    assert file["examples"] == sum(count for _, _, count in file["confusion"]) == len(predicted)
    wrong = [entry for entry in file["confusion"] if entry[0] != entry[1]]
    assert sum(count for _, _, count in wrong) == mistakes
    assert {entry[1] for entry in wrong} == {"blue"}
    page = (tmp_path / "html" / PAGE_FILE).read_text(encoding="utf-8")
    for text in (
        "red/broken.jpg",
        "predicted as blue",
        "colours",
        "c0de",
        "2026-01-02",
        "flip",
        "at least",
        "131,402",
    ):
        assert text in page
    assert page.count("data:image/jpeg") >= 3 * 4 * 2 + mistakes
    card = (tmp_path / "card" / CARD_FILE).read_text(encoding="utf-8")
    assert card.startswith("---\n")
    assert f"{accuracy:.4f}" in card
    assert on_kubeflow(outputs["metrics"])["accuracy"] == pytest.approx(accuracy)


@pytest.mark.slow
def test_on_kubeflow_the_uris_are_files(
    given: dict[str, types.Artifact], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("components.report.page.document.render", lambda facts: "a page")
    run(given, tmp_path, local=False)
    assert (tmp_path / "html").read_text() == "a page"
    assert json.loads((tmp_path / "metrics").read_text())["split"] == "eval"
    assert (tmp_path / "card").read_text().startswith("---\n")


def test_rejects_of_an_ingest_are_shown(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    for label in ("cat", "dog"):
        (folder / label).mkdir(parents=True)
        for number in range(15):
            image = encode(picture(number + 100 * (label == "cat")), "JPEG")
            (folder / label / f"{number}.jpg").write_bytes(image)
    large = encode(picture(1, height=300, width=400), "JPEG")
    (folder / "cat" / "cut.jpg").write_bytes(large[: len(large) * 2 // 3])
    (folder / "cat" / "note.jpg").write_bytes(b"not an image")
    config = IngestConfig(max_reject_fraction=1)
    rejects_uri = nodes.ingest(folder, tmp_path, config=config).rejects.uri

    cut, note = show_rejects(rejects_uri, str(folder), most=40)
    assert (cut.path, cut.category) == ("cat/cut.jpg", "truncated")
    assert cut.picture is not None
    assert cut.picture == make_thumbnail((folder / "cat" / "cut.jpg").read_bytes())
    assert (note.category, note.picture) == ("not an image", None)
    assert "format" in note.reason


def test_a_split_that_lacks_a_class() -> None:
    predictions = make_predictions(NASTY, missing=(2,))
    artifact = ClassificationMetrics()
    set_classification(artifact, measure(predictions))
    metadata = on_kubeflow(artifact)
    check_confusion_matrix(metadata["confusionMatrix"])
    row = sorted(NASTY).index(NASTY[2])
    assert sum(metadata["confusionMatrix"]["rows"][row]["row"]) == 0


def test_the_matrix_shows_the_classes_with_most_mistakes_and_fits_mlmd() -> None:
    labels = tuple(f"class {number:02d} {'é' * 250}" for number in range(MOST_CLASSES + 10))
    ids = np.repeat(np.arange(len(labels)), 3)
    predicted = ids.copy()
    predicted[[0, 3]] = len(labels) - 1
    artifact = ClassificationMetrics()
    probabilities = np.eye(len(labels), dtype=np.float32)[predicted]
    set_classification(artifact, measure(Predictions(labels, ids, probabilities)))
    assert artifact.mlmd_artifact.ByteSize() < 2**18
    matrix = on_kubeflow(artifact)["confusionMatrix"]
    check_confusion_matrix(matrix)
    names = [spec["displayName"] for spec in matrix["annotationSpecs"]]
    # Without mistakes, the first ones.
    assert names == [*labels[: MOST_CLASSES - 1], labels[-1]]
    assert matrix["rows"][0]["row"] == [2, *[0] * (MOST_CLASSES - 2), 1]


@pytest.mark.parametrize(("each", "undefined"), [(20, set()), (0, {"auc"})])
def test_metrics_are_numbers_of_one_kind(each: int, undefined: set[str]) -> None:
    """Undefined metrics are left out: Kubeflow's API cannot represent them."""
    predictions = make_predictions(NASTY, each=each or 5, missing=() if each else (1, 2, 3))
    artifact = Metrics()
    set_metrics(artifact, measure(predictions))
    properties = artifact.mlmd_artifact.custom_properties
    assert properties.keys() == {*METRICS, "examples"} - undefined
    assert {value.WhichOneof("value") for value in properties.values()} == {"double_value"}


def test_kubeflow_recognizes_the_types(given: dict[str, types.Artifact]) -> None:
    inputs = {name: types.Channel(type=type(artifact)) for name, artifact in given.items()}
    outputs = ImageReport(pipeline="", code="", preview_fn="", **inputs).outputs
    titles = {
        name: re.search(r"title: (\S+)", compiler_utils.get_artifact_schema(channel.type))
        for name, channel in outputs.items()
    }
    assert {name: title and title[1] for name, title in titles.items()} == {
        "html": "system.HTML",
        "metrics": "system.Metrics",
        "classification": "system.ClassificationMetrics",
        "card": "system.Markdown",
        "suspects": "images.ImageSuspects",
    }

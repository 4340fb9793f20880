from __future__ import annotations

import json
import re
import warnings
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from google.protobuf import json_format
from sklearn import metrics
from tfx import types
from tfx.orchestration.kubeflow.v2 import compiler_utils
from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_entrypoint_utils
from tfx.types import standard_artifacts

from components import example
from components.image_evaluator import FLOOR_PROPERTY, SPLIT_PROPERTY
from components.image_report import Executor, ImageReport
from components.predictions import Predictions, measure, predict
from components.report_page import Report, render
from components.shards import write_index
from components.ui_artifacts import (
    MOST_CLASSES,
    PAGE_FILE,
    ClassificationMetrics,
    Html,
    Metrics,
    set_classification,
    set_metrics,
    write_page,
)

NASTY = ("<script>alert(1)</script>", "\"quoted\" & 'so'", "日本語", "قطة")


class Model(tf.Module):
    """Has the exported model's signatures; an "image" is its own float32 logits."""

    def __init__(self, labels: list[bytes]) -> None:
        super().__init__()
        self.labels = labels
        # Lost with the model, if only its signatures were kept.
        self.scale = tf.Variable(1.0)

    def scores(self, encoded: tf.Tensor) -> tf.Tensor:
        logits = tf.reshape(tf.io.decode_raw(encoded, tf.float32), [-1, len(self.labels)])
        return tf.nn.softmax(logits * self.scale)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image_bytes")])
    def serving_default(self, image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        scores = self.scores(image_bytes)
        texts = tf.tile(tf.constant([self.labels]), [tf.shape(scores)[0], 1])
        return {"labels": texts, "probabilities": scores}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serving_examples(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        key = example.ENCODED
        features = tf.io.parse_example(examples, {key: tf.io.FixedLenFeature([], tf.string)})
        return {"probabilities": self.scores(features[key])}


def make_predictions(
    labels: tuple[str, ...], *, each: int = 20, missing: tuple[int, ...] = (), seed: int = 0
) -> Predictions:
    """Right more often than not; none of the classes `missing`."""
    random = np.random.default_rng(seed)
    ids = np.repeat([i for i in range(len(labels)) if i not in missing], each)
    random.shuffle(ids)
    logits = random.normal(0, 1, (len(ids), len(labels)))
    logits[np.arange(len(ids)), ids] += 1.5
    probabilities = tf.nn.softmax(logits.astype(np.float32)).numpy()
    return Predictions(labels, ids.astype(np.int64), probabilities)


def write_examples(folder: Path, split: str, predictions: Predictions) -> types.Artifact:
    """Two shards of examples to which `Model` answers with `predictions`."""
    shards = {}
    for number, rows in enumerate(np.array_split(np.arange(len(predictions.ids)), 2)):
        path = folder / f"Split-{split}" / f"data_tfrecord-{number:05d}-of-00002"
        path.parent.mkdir(parents=True, exist_ok=True)
        shards[path.name] = len(rows)
        with tf.io.TFRecordWriter(str(path)) as writer:
            for row in rows:
                features = {
                    example.ENCODED: np.log(predictions.probabilities[row]).tobytes(),
                    example.LABEL: predictions.labels[predictions.ids[row]].encode(),
                }
                writer.write(_serialize(features))
    write_index(str(folder), {split: shards})
    artifact = standard_artifacts.Examples()
    artifact.uri = str(folder)
    return artifact


def _serialize(features: dict[str, bytes]) -> bytes:
    record = tf.train.Example()
    for name, value in features.items():
        record.features.feature[name].bytes_list.value.append(value)
    serialized: bytes = record.SerializeToString()
    return serialized


def write_model(folder: Path, labels: tuple[str, ...]) -> types.Artifact:
    model = Model([label.encode() for label in labels])
    signatures = {name: getattr(model, name) for name in ("serving_default", "serving_examples")}
    tf.saved_model.save(model, str(folder / "Format-Serving"), signatures=signatures)
    artifact = standard_artifacts.Model()
    artifact.uri = str(folder)
    return artifact


def run(
    folder: Path, predictions: Predictions, *, html: Path, blessed: float = 1
) -> dict[str, types.Artifact]:
    """Run the executor; return the outputs by name."""
    evaluation, blessing = standard_artifacts.ModelEvaluation(), standard_artifacts.ModelBlessing()
    evaluation.set_string_custom_property(SPLIT_PROPERTY, "test")
    evaluation.set_float_custom_property(FLOOR_PROPERTY, 0.25)
    # Kubeflow knows but doubles.
    blessing.mlmd_artifact.custom_properties["blessed"].double_value = blessed
    inputs = {
        "examples": write_examples(folder / "examples", "test", predictions),
        "model": write_model(folder / "model", predictions.labels),
        "evaluation": evaluation,
        "blessing": blessing,
    }
    outputs: dict[str, types.Artifact] = {
        "html": Html(),
        "metrics": Metrics(),
        "classification": ClassificationMetrics(),
    }
    outputs["html"].uri = str(html)
    Executor().Do(
        {name: [artifact] for name, artifact in inputs.items()},
        {name: [artifact] for name, artifact in outputs.items()},
        {},
    )
    return outputs


def on_kubeflow(artifact: types.Artifact) -> dict[str, Any]:
    """Return the metadata that TFX's entry point hands to Kubeflow, as the launcher reads it."""
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


def check_confidence_metrics(points: list[dict[str, Any]]) -> None:
    """The checks of `validateConfidenceMetrics`, and what makes a curve of its points."""
    for point in points:
        assert point.keys() == {"confidenceThreshold", "falsePositiveRate", "recall"}
        assert all(isinstance(value, int | float) for value in point.values())
        assert all(0 <= value <= 1 for value in point.values())
    ends = [(point["falsePositiveRate"], point["recall"]) for point in (points[0], points[-1])]
    assert ends == [(0, 0), (1, 1)]
    for key, sign in (("falsePositiveRate", 1), ("recall", 1), ("confidenceThreshold", -1)):
        assert (sign * np.diff([point[key] for point in points]) >= 0).all()
    assert len(points) <= 100


def classification_of(predictions: Predictions) -> dict[str, Any]:
    artifact = ClassificationMetrics()
    set_classification(artifact, measure(predictions))
    return on_kubeflow(artifact)


def page_of(predictions: Predictions) -> str:
    measures = measure(predictions)
    return render(Report(split="test", blessed=False, floor=0.25, measures=measures))


def test_executor_gives_what_scikit_learn_gives(tmp_path: Path) -> None:
    expected = make_predictions(NASTY, each=17)
    outputs = run(tmp_path, expected, html=tmp_path / "html")
    found = on_kubeflow(outputs["metrics"])
    ids, probabilities = expected.ids, expected.probabilities.astype(np.float64)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    predicted = probabilities.argmax(axis=1)
    assert found == {
        "accuracy": pytest.approx(metrics.accuracy_score(ids, predicted)),
        "balanced_accuracy": pytest.approx(metrics.balanced_accuracy_score(ids, predicted)),
        "macro_f1": pytest.approx(metrics.f1_score(ids, predicted, average="macro")),
        "loss": pytest.approx(metrics.log_loss(ids, probabilities), rel=1e-6),
        "examples": 68,
    }
    matrix = on_kubeflow(outputs["classification"])["confusionMatrix"]
    check_confusion_matrix(matrix)
    assert [spec["displayName"] for spec in matrix["annotationSpecs"]] == sorted(NASTY)
    texts = np.array(NASTY)
    rows = [row["row"] for row in matrix["rows"]]
    np.testing.assert_array_equal(rows, metrics.confusion_matrix(texts[ids], texts[predicted]))


def test_the_model_answers_each_example_once_in_the_order_of_the_shards(tmp_path: Path) -> None:
    expected = make_predictions(("a", "b", "c"), each=25, missing=(1,))
    examples = write_examples(tmp_path / "examples", "eval", expected)
    model = write_model(tmp_path / "model", expected.labels)
    found = predict(examples.uri, "eval", f"{model.uri}/Format-Serving")
    assert found.labels == expected.labels
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.probabilities, expected.probabilities, rtol=1e-5)


def test_a_label_that_the_model_does_not_know(tmp_path: Path) -> None:
    examples = write_examples(tmp_path / "examples", "eval", make_predictions(("a", "b")))
    model = write_model(tmp_path / "model", ("a", "c"))
    with pytest.raises(ValueError, match="does not know the label b'b'"):
        predict(examples.uri, "eval", f"{model.uri}/Format-Serving")


@pytest.mark.parametrize("blessed", [0.0, 1.0])
def test_the_same_inputs_give_the_same_page(tmp_path: Path, blessed: float) -> None:
    predictions = make_predictions(NASTY, each=5)
    pages = []
    for number in range(2):
        file = tmp_path / f"html-{number}"
        run(tmp_path / str(number), predictions, html=file, blessed=blessed)
        pages.append(file.read_bytes())
    assert pages[0] == pages[1]
    assert (b"Not blessed" in pages[0]) == (not blessed)


def test_the_uri_is_the_page_where_it_is_no_folder(tmp_path: Path) -> None:
    write_page("página", str(tmp_path / "new" / "html"))
    assert (tmp_path / "new" / "html").read_text(encoding="utf-8") == "página"
    (tmp_path / "folder").mkdir()
    write_page("página", str(tmp_path / "folder"))
    assert (tmp_path / "folder" / PAGE_FILE).read_text(encoding="utf-8") == "página"


def test_loss_is_bounded_as_keras_bounds_it() -> None:
    sure = np.array([[1, 0], [0, 1]], np.float32)
    measures = measure(Predictions(("a", "b"), np.array([0, 0]), sure))
    keras = tf_keras.losses.sparse_categorical_crossentropy(np.array([0, 0]), sure)
    assert measures.loss == pytest.approx(keras.numpy().mean(), rel=1e-3)


@pytest.mark.parametrize("labels", [("cat", "dog"), NASTY, tuple(map(str, range(30)))])
def test_roc_curve_keeps_its_shape(labels: tuple[str, ...]) -> None:
    predictions = make_predictions(labels, each=200)
    points = classification_of(predictions)["confidenceMetrics"]
    check_confidence_metrics(points)
    ids, scores = predictions.ids, predictions.probabilities
    truth = ids if len(labels) == 2 else np.eye(len(labels))[ids].ravel()
    scores = scores[:, 1] if len(labels) == 2 else scores.ravel()
    x, y = ([point[key] for point in points] for key in ("falsePositiveRate", "recall"))
    area = metrics.roc_auc_score(truth, scores)
    assert metrics.auc(x, y) == pytest.approx(area, abs=2e-3)
    roc = measure(predictions).roc
    assert roc
    assert roc.area == pytest.approx(area)
    assert roc.positive == ("dog" if len(labels) == 2 else None)


def test_roc_curve_of_equal_scores_is_that_of_scikit_learn() -> None:
    predictions = make_predictions(("cat", "dog"), each=20)
    coarse = Predictions(predictions.labels, predictions.ids, predictions.probabilities.round(1))
    roc = measure(coarse).roc
    assert roc
    x, y, _ = metrics.roc_curve(coarse.ids, coarse.probabilities[:, 1])
    np.testing.assert_allclose(
        np.interp(x + y, roc.false_positive_rate + roc.recall, roc.recall), y
    )
    assert roc.area == pytest.approx(metrics.auc(x, y))


def test_a_curve_without_a_bend_has_two_points_and_a_perfect_one_three() -> None:
    def points(scores: list[float]) -> list[tuple[float, float]]:
        columns = np.array([[1 - score, score] for score in scores], np.float32)
        found = classification_of(Predictions(("a", "b"), np.array([0, 0, 1, 1]), columns))
        return [(p["falsePositiveRate"], p["recall"]) for p in found["confidenceMetrics"]]

    assert points([0.5, 0.5, 0.5, 0.5]) == [(0, 0), (1, 1)]
    assert points([0.1, 0.2, 0.8, 0.9]) == [(0, 0), (0, 1), (1, 1)]


def test_the_positive_class_is_the_second_by_name_whatever_the_model_s_order() -> None:
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]], np.float32)
    measures = measure(Predictions(("dog", "cat"), np.array([0, 1, 1]), probabilities))
    assert measures.labels == ("cat", "dog")
    np.testing.assert_array_equal(measures.confusion, [[1, 1], [0, 1]])
    assert measures.roc
    assert (measures.roc.positive, measures.roc.area) == ("dog", 1)


@pytest.mark.parametrize("missing", [0, 1])
def test_no_roc_curve_of_one_class(missing: int) -> None:
    predictions = make_predictions(("cat", "dog"), missing=(missing,))
    assert classification_of(predictions).keys() == {"confusionMatrix"}
    assert "images of one class only" in page_of(predictions)


def test_a_class_that_the_split_does_not_have() -> None:
    predictions = make_predictions(NASTY, missing=(2,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measures = measure(predictions)
    predicted = predictions.probabilities.argmax(axis=1)
    assert 2 in predicted
    recall = metrics.recall_score(predictions.ids, predicted, labels=[0, 1, 3], average="macro")
    assert measures.balanced_accuracy == pytest.approx(recall)
    f1 = metrics.f1_score(predictions.ids, predicted, average="macro")
    assert measures.macro_f1 == pytest.approx(f1)
    metadata = classification_of(predictions)
    check_confusion_matrix(metadata["confusionMatrix"])
    check_confidence_metrics(metadata["confidenceMetrics"])
    row = sorted(NASTY).index(NASTY[2])
    assert sum(metadata["confusionMatrix"]["rows"][row]["row"]) == 0
    assert "nan" not in page_of(predictions).lower()


def test_of_many_classes_those_with_most_mistakes() -> None:
    labels = tuple(f"class {number:02d}" for number in range(MOST_CLASSES + 10))
    ids = np.repeat(np.arange(len(labels)), 3)
    predicted = ids.copy()
    predicted[[0, 3]] = len(labels) - 1
    probabilities = np.eye(len(labels), dtype=np.float32)[predicted]
    predictions = Predictions(labels, ids, probabilities)
    metadata = classification_of(predictions)
    check_confusion_matrix(metadata["confusionMatrix"])
    names = [spec["displayName"] for spec in metadata["confusionMatrix"]["annotationSpecs"]]
    # Without mistakes, the first ones.
    assert names == [*labels[: MOST_CLASSES - 1], labels[-1]]
    assert metadata["confusionMatrix"]["rows"][0]["row"] == [2, *[0] * (MOST_CLASSES - 2), 1]
    page = page_of(predictions)
    assert f"Of {len(labels)} classes, these are the {MOST_CLASSES}" in page
    assert all(f">{label}</bdi>" in page for label in labels)


def test_metadata_of_long_labels_is_far_below_what_mlmd_takes() -> None:
    labels = tuple(f"{number}-{'é' * 250}" for number in range(200))
    artifact = ClassificationMetrics()
    set_classification(artifact, measure(make_predictions(labels, each=2)))
    assert artifact.mlmd_artifact.ByteSize() < 2**18


class _Tags(HTMLParser):
    """Collects the tags, and complains of those that are not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.texts: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.add(data)


def test_labels_are_text_whatever_they_hold() -> None:
    page = page_of(make_predictions(NASTY))
    tags = _Tags()
    tags.feed(page)
    assert not tags.open
    assert "script" not in tags.seen
    assert set(NASTY) <= tags.texts


def test_the_page_loads_nothing() -> None:
    page = page_of(make_predictions(("cat", "dog")))
    namespaces = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert set(re.findall(r"https?://[^\s\"'<>]+", page)) <= namespaces
    assert not re.search(r"@import|\bsrc=|<link|url\((?!#)", page)
    assert "The positive class is <bdi" in page
    assert "micro-average" in page_of(make_predictions(NASTY)).lower()


def test_metrics_are_numbers_of_one_kind() -> None:
    artifact = Metrics()
    set_metrics(artifact, measure(make_predictions(NASTY)))
    kinds = {v.WhichOneof("value") for v in artifact.mlmd_artifact.custom_properties.values()}
    assert kinds == {"double_value"}


def test_kubeflow_knows_the_types_by_their_names() -> None:
    channels = {
        name: types.Channel(type=kind)
        for name, kind in (
            ("examples", standard_artifacts.Examples),
            ("model", standard_artifacts.Model),
            ("evaluation", standard_artifacts.ModelEvaluation),
            ("blessing", standard_artifacts.ModelBlessing),
        )
    }
    outputs = ImageReport(**channels).outputs
    titles = {
        name: re.search(r"title: (\S+)", compiler_utils.get_artifact_schema(channel.type))
        for name, channel in outputs.items()
    }
    assert {name: title and title[1] for name, title in titles.items()} == {
        "html": "system.HTML",
        "metrics": "system.Metrics",
        "classification": "system.ClassificationMetrics",
    }

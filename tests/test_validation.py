from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest
import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2
from tfx import types
from tfx.components.example_validator import executor as example_validator
from tfx.types import artifact_utils, standard_artifacts
from tfx.utils import io_utils

from components import example
from components.anomaly_gate import AnomalyGate, read_anomalies
from components.errors import UserError
from components.image_schema_gen import correct_schema
from tests import nodes


def statistics_of(labels: list[str]) -> statistics_pb2.DatasetFeatureStatisticsList:
    """TFDV's statistics of records with these labels."""
    frame = pd.DataFrame(
        {
            example.LABEL: labels,
            example.FILENAME: [f"{label}/{number}.jpg" for number, label in enumerate(labels)],
            example.FORMAT: ["jpeg"] * len(labels),
            example.HEIGHT: [24] * len(labels),
        }
    )
    return tfdv.generate_statistics_from_dataframe(frame, n_jobs=1)


def schema_of(labels: list[str]) -> schema_pb2.Schema:
    statistics = statistics_of(labels)
    schema = tfdv.infer_schema(statistics)
    correct_schema(schema, statistics)
    return schema


def domain(schema: schema_pb2.Schema, name: str) -> list[str] | None:
    return next((list(d.value) for d in schema.string_domain if d.name == name), None)


LABELS = {
    "words": ["cat", "dog"] * 3,
    # TFDV takes these for numbers, any of which would do.
    "digits": ["3", "7"] * 3,
    # TFDV gives no domain to more than a hundred values.
    "many": [f"class {number:03d}" for number in range(300)],
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS.keys())
def test_schema_knows_all_labels_and_no_names(labels: list[str]) -> None:
    schema = schema_of(labels)
    assert domain(schema, example.LABEL) == sorted(set(labels))
    assert domain(schema, example.FORMAT) == ["bmp", "gif", "jpeg", "png"]
    features = {feature.name: feature for feature in schema.feature}
    assert features[example.FILENAME].WhichOneof("domain_info") is None
    assert {d.name for d in schema.string_domain} == {example.LABEL, example.FORMAT}


def test_the_pipelines_own_schema(ingested: nodes.Ingested, tmp_path: Path) -> None:
    artifact = nodes.infer_schema(ingested, tmp_path)
    [file] = Path(artifact.uri).iterdir()
    schema = io_utils.parse_pbtxt_file(str(file), schema_pb2.Schema())
    assert domain(schema, example.LABEL) == ["blue", "green", "red"]
    assert all(feature.presence.min_fraction == 1 for feature in schema.feature)
    assert {feature.name for feature in schema.feature} >= {example.ENCODED, example.SHA256}


def validate(train: list[str], held_out: list[str], folder: Path) -> types.Artifact:
    """Run the real ExampleValidator on two splits, with the schema of the first."""
    statistics = standard_artifacts.ExampleStatistics()
    schema = standard_artifacts.Schema()
    anomalies = standard_artifacts.ExampleAnomalies()
    for artifact in (statistics, schema, anomalies):
        artifact.uri = str(folder / artifact.type_name)
    statistics.split_names = artifact_utils.encode_split_names(["train", "eval"])
    for split, labels in (("train", train), ("eval", held_out)):
        path = os.path.join(statistics.uri, f"Split-{split}", "FeatureStats.pb")
        io_utils.write_bytes_file(path, statistics_of(labels).SerializeToString())
    io_utils.write_pbtxt_file(os.path.join(schema.uri, "schema.pbtxt"), schema_of(train))
    example_validator.Executor().Do(
        {"statistics": [statistics], "schema": [schema]}, {"anomalies": [anomalies]}, {}
    )
    return anomalies


def open_gate(anomalies: types.Artifact, folder: Path) -> None:
    passed = standard_artifacts.Integer()
    passed.uri = str(folder / "passed")
    AnomalyGate.EXECUTOR_SPEC.executor_class().Do(
        {"anomalies": [anomalies]}, {"passed": [passed]}, {}
    )
    assert passed.read() == 1


def test_gate_lets_good_examples_pass(tmp_path: Path) -> None:
    anomalies = validate(["cat", "dog"] * 3, ["dog", "cat"], tmp_path)
    assert read_anomalies(anomalies) == {"train": [], "eval": []}
    open_gate(anomalies, tmp_path)


def test_gate_names_the_label_that_training_does_not_know(tmp_path: Path) -> None:
    anomalies = validate(["cat", "dog"] * 3, ["cat", "zebra"], tmp_path)
    with pytest.raises(UserError, match=r"eval: image/class/text: .*zebra"):
        open_gate(anomalies, tmp_path)


def test_statistics_hold_no_image_in_memory(ingested: nodes.Ingested, tmp_path: Path) -> None:
    """TFDV would keep every value of a text, to find the most frequent ones."""
    nodes.infer_schema(ingested, tmp_path)
    found = tfdv.load_stats_binary(f"{tmp_path}/statistics/Split-train/FeatureStats.pb")
    features = {f.path.step[0]: f for f in found.datasets[0].features}
    assert features[example.ENCODED].WhichOneof("stats") == "bytes_stats"
    assert features[example.FILENAME].WhichOneof("stats") == "string_stats"

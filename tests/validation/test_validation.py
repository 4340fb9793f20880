import contextlib
import json
import logging
import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow_data_validation as tfdv
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx import types
from tfx.components.example_validator import executor as example_validator
from tfx.components.statistics_gen import executor as statistics_gen
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.types import artifact_utils, standard_artifacts
from tfx.utils import io_utils

from components.contract import example
from components.contract.anomalies import Anomaly, read_anomalies
from components.contract.configuration import to_json
from components.contract.errors import DataError, StorageError
from components.contract.properties import LookupInput
from components.validation import schema_gen as image_schema_gen
from components.validation import statistics_gen as image_statistics_gen
from components.validation import validator as image_validator
from components.validation.config import ValidationConfig
from components.validation.gate import AnomalyGate, add_to_history
from components.validation.lookup import (
    find_earlier,
    list_history,
    look_up,
    read_entry_statistics,
)
from components.validation.schema_gen import add_columns, correct_schema
from components.validation.statistics_gen import statistics_options
from components.validation.tfdv_files import (
    Statistics,
    find_feature,
    read_schema,
    read_statistics,
)
from tests import nodes
from tests.files import write_files
from tests.storage.s3_server import serve_s3

GOOD = b"\xff\xd8\xff" + bytes(20)


def statistics_of(labels: Sequence[str], **columns: Any) -> Statistics:
    """TFDV's statistics of records with these labels; `columns` override those of the records."""
    number = len(labels)
    frame = pd.DataFrame(
        {
            example.LABEL: labels,
            example.FILENAME: [f"{label}/{number}.jpg" for number, label in enumerate(labels)],
            example.FORMAT: ["jpeg"] * number,
            example.HEIGHT: [24] * number,
            example.ENCODED: [GOOD] * number,
            example.LUMINANCE: np.linspace(80, 120, number),
        }
        | {getattr(example, name): values for name, values in columns.items()}
    )
    statistics: Statistics = tfdv.generate_statistics_from_dataframe(
        frame, stats_options=statistics_options(), n_jobs=1
    )
    return statistics


def schema_of(statistics: Statistics) -> schema_pb2.Schema:
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
    schema = schema_of(statistics_of(labels))
    assert domain(schema, example.LABEL) == sorted(set(labels))
    assert domain(schema, example.FORMAT) == ["bmp", "gif", "jpeg", "png"]
    assert {d.name for d in schema.string_domain} == {example.LABEL, example.FORMAT}
    statistics = {f.path.step[0]: f for f in statistics_of(labels).datasets[0].features}
    # Of texts, TFDV would keep every image in memory.
    for name in (example.ENCODED, example.FILENAME):
        assert statistics[name].WhichOneof("stats") == "bytes_stats"


@pytest.fixture(scope="module")
def counted(
    ingested: nodes.Ingested, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, types.Artifact]:
    """Statistics of the same examples by TFX's executor, and by ours with and without Beam."""
    by_executor = {}
    ours, few = image_statistics_gen.Executor, image_statistics_gen._FEW
    for name, executor in (("tfx", statistics_gen.Executor), ("beam", ours), ("here", ours)):
        image_statistics_gen._FEW = 0 if name == "beam" else few
        by_executor[name] = statistics = standard_artifacts.ExampleStatistics()
        statistics.uri = str(tmp_path_factory.mktemp("statistics"))
        context = BaseBeamExecutor.Context(beam_pipeline_args=list(nodes.IN_MEMORY))
        executor(context).Do(
            {"examples": [ingested.examples]},
            {"statistics": [statistics]},
            {"stats_options_json": statistics_options().to_json()},
        )
    return by_executor


@pytest.mark.slow
@pytest.mark.parametrize("name", ["beam", "here"])
def test_statistics_are_those_of_tfx(counted: dict[str, types.Artifact], name: str) -> None:
    theirs, ours = counted["tfx"], counted[name]
    assert (ours.split_names, ours.span) == (theirs.split_names, theirs.span)
    for split in artifact_utils.decode_split_names(theirs.split_names):
        expected, actual = (read_statistics(artifact.uri, split) for artifact in (theirs, ours))
        image = find_feature(actual, example.ENCODED)
        assert image is not None
        assert image.bytes_stats.min_num_bytes > 200
        expected.datasets[0].features.sort(key=lambda feature: list(feature.path.step))
        assert rounded(actual) == rounded(expected)


def rounded(statistics: Statistics) -> str:
    """Their text; the order in which shards are added up matters to the last digits."""
    text = text_format.MessageToString(statistics)
    return re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.6g}", text)


@pytest.mark.slow
def test_the_pipelines_own_schema(counted: dict[str, types.Artifact], tmp_path: Path) -> None:
    statistics, schema = counted["beam"], standard_artifacts.Schema()
    schema.uri = str(tmp_path / "inferred")
    image_schema_gen.Executor().Do({"statistics": [statistics]}, {"schema": [schema]}, {})
    inferred = read_schema(f"{schema.uri}/schema.pbtxt")
    assert domain(inferred, example.LABEL) == ["blue", "green", "red"]
    names = [feature.name for feature in inferred.feature]
    assert names == sorted(names), "whatever order the workers finish in"


class Run:
    """The data nodes of one run in a folder of its own, on statistics made on the spot."""

    def __init__(
        self,
        folder: Path,
        train: Statistics,
        held_out: Statistics | None = None,
        span: int = 0,
        key: str = "",
    ) -> None:
        self.folder = folder
        self.statistics = self._artifact(standard_artifacts.ExampleStatistics)
        self.statistics.span = span
        self.statistics.set_string_custom_property("examples_key", key)
        splits = {"train": train} | ({"eval": held_out} if held_out else {})
        self.statistics.split_names = artifact_utils.encode_split_names(list(splits))
        for split, content in splits.items():
            path = os.path.join(self.statistics.uri, f"Split-{split}", "FeatureStats.pb")
            io_utils.write_bytes_file(path, content.SerializeToString())
        self.schema = self._artifact(standard_artifacts.Schema)
        self.anomalies = self._artifact(standard_artifacts.ExampleAnomalies)

    def _artifact(self, kind: type[types.Artifact]) -> types.Artifact:
        artifact = kind()
        artifact.uri = str(self.folder / artifact.type_name)
        return artifact

    def validate(self, config: ValidationConfig | None = None) -> None:
        """Run the real SchemaGen and ExampleValidator, with a lookup before it as on Kubeflow."""
        config = config or ValidationConfig()
        curated = read_schema(config.schema) if config.schema else None
        text = text_format.MessageToString(curated) if curated else None
        statistics = {"statistics": [self.statistics]}
        image_schema_gen.Executor().Do(
            statistics,
            {"schema": [self.schema]},
            {"config": to_json(config), "curated_schema": text},
        )
        given: dict[str, Any] = {"statistics_history": self.history, "config": to_json(config)}
        looked_up = image_validator.Driver.look_up(statistics, given)
        image_validator.Executor().Do(
            {**statistics, "schema": [self.schema]},
            {"anomalies": [self.anomalies]},
            {**given, **looked_up},
        )

    @property
    def findings(self) -> list[Anomaly]:
        by_split = read_anomalies(self.anomalies.uri, self.anomalies.split_names).values()
        return [finding for of_split in by_split for finding in of_split]

    @property
    def history(self) -> str:
        """Folder that all runs in neighbouring folders share."""
        return str(self.folder.parent / "history")

    def pass_gate(self, **severities: str) -> None:
        passed = self._artifact(standard_artifacts.Integer)
        AnomalyGate.EXECUTOR_SPEC.executor_class().Do(
            {"anomalies": [self.anomalies], "statistics": [self.statistics]},
            {"passed": [passed]},
            {"statistics_history": self.history, "config": json.dumps(severities)},
        )
        assert passed.read() == 1


def looked_at(statistics: types.Artifact) -> LookupInput:
    key = statistics.get_string_custom_property("examples_key")
    return LookupInput(statistics.uri, int(statistics.span), key)


def finished(folder: Path, train: Statistics, *, span: int = 0) -> None:
    """Leave what a run on `train` leaves."""
    run = Run(folder, train, span=span)
    run.validate()
    run.pass_gate()


def test_gate_names_unknown_labels(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = Run(tmp_path / "run", statistics_of(["cat", "dog"] * 3), statistics_of(["cat", "zebra"]))
    run.validate()
    blessed = run.anomalies.get_json_value_custom_property(
        example_validator.ARTIFACT_PROPERTY_BLESSED_KEY
    )
    assert blessed == {"train": 1, "eval": 0}
    with pytest.raises(DataError, match=r"eval: image/class/text: .*zebra"):
        run.pass_gate()
    assert list_history(run.history) == []
    # It goes on with a warning where the configuration says so.
    with caplog.at_level(logging.WARNING):
        run.pass_gate(anomalies="warn")
    [finding] = run.findings
    assert "zebra" in str(finding)
    assert str(finding) in caplog.text


HUNDRED = ["cat", "dog"] * 60


def limit(
    train: Statistics, path: Path, *, size: int, sides: tuple[int, int], formats: list[str]
) -> ValidationConfig:
    """Write limits into a curated schema, as the head of one from the command says."""
    schema = schema_of(train)
    features = {feature.name: feature for feature in schema.feature}
    features[example.ENCODED].image_domain.max_image_byte_size = size
    height = features[example.HEIGHT].int_domain
    height.min, height.max = sides
    [values] = [values for values in schema.string_domain if values.name == example.FORMAT]
    values.value[:] = formats
    path.write_text(text_format.MessageToString(schema, as_utf8=True))
    return ValidationConfig(schema=str(path))


def junk(number: int) -> list[bytes]:
    return [b"junk"] * number + [GOOD] * (120 - number)


WITHIN: dict[str, Any] = {"size": 23, "sides": (24, 24), "formats": ["jpeg"]}
# Limits, columns of the records, and what is said of them.
LIMITS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "within": (WITHIN, {}, ""),
    "bytes": ({"size": 20}, {}, "image/encoded: The largest image has bytes: 23"),
    "small": ({"sides": (32, 64)}, {}, "image/height: .*24"),
    "large": ({"sides": (8, 16)}, {}, "image/height: .*24"),
    "format": ({"formats": ["png"]}, {}, "image/format: .*jpeg"),
    "some are no images": ({}, {"ENCODED": junk(12)}, "image/encoded: Fraction .* 0.900000"),
    # TFDV itself says nothing of these.
    "most are no images": ({}, {"ENCODED": junk(60)}, "image/encoded: Fewer than 80%"),
}


@pytest.mark.parametrize(("limits", "columns", "text"), LIMITS.values(), ids=LIMITS.keys())
def test_images_outside_the_limits_are_anomalies(
    limits: dict[str, Any], columns: dict[str, Any], text: str, tmp_path: Path
) -> None:
    train = statistics_of(HUNDRED, **columns)
    run = Run(tmp_path / "run", train)
    curated = limit(train, tmp_path / "curated.pbtxt", **{**WITHIN, **limits})
    run.validate(curated if limits else None)
    assert {finding.kind for finding in run.findings} == ({"anomaly"} if text else set())
    with pytest.raises(DataError, match=f"train: {text}") if text else contextlib.nullcontext():
        run.pass_gate()


def test_a_curated_schema_decides_and_is_kept_as_it_is(tmp_path: Path) -> None:
    train = statistics_of(["cat", "dog", "owl"] * 2)
    schema = schema_of(train)
    [labels] = [values for values in schema.string_domain if values.name == example.LABEL]
    labels.value[:] = ["cat", "dog", "emu", "gnu"]
    path = tmp_path / "curated.pbtxt"
    path.write_text("# Looked through.\n" + text_format.MessageToString(schema, as_utf8=True))
    run = Run(tmp_path / "run", train)
    run.validate(ValidationConfig(schema=str(path)))
    written = io_utils.parse_pbtxt_file(f"{run.schema.uri}/schema.pbtxt", schema_pb2.Schema())
    assert written == schema
    new, missing = run.findings
    assert "owl" in new.text
    assert missing.text == "No image has the labels 'emu', 'gnu' of the schema"
    assert {new.kind, missing.kind} == {"anomaly"}


BROKEN_SCHEMAS = {
    "unknown field": (b"feature { name: 'a' }\nfeatures {}\n", r"is not .*: 2:1 : .*features"),
    "binary": (b"\xff\xfe\x00", "is not a schema in text"),
    "another table": (b"feature { name: 'age' }", "lacks the feature image/encoded and the feat"),
    "no file": (None, "does not exist"),
}


@pytest.mark.parametrize(("content", "text"), BROKEN_SCHEMAS.values(), ids=BROKEN_SCHEMAS.keys())
def test_a_schema_that_is_none_is_refused(content: bytes | None, text: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "s.pbtxt").write_bytes(content)
    with pytest.raises(DataError, match=rf"validation.schema: .*s\.pbtxt.* {text}"):
        read_schema(f"{tmp_path}/s.pbtxt")


@cache
def labelled(**counts: int) -> Statistics:
    return statistics_of([label for label, number in counts.items() for _ in range(number)])


def sample(images: Any) -> Statistics:
    if isinstance(images, dict):
        return labelled(**images)
    luminance = np.random.default_rng(images).normal(images, 10, 300)
    return statistics_of(["cat", "dog"] * 150, LUMINANCE=luminance)


CATS_AND_DOGS = {"cat": 500, "dog": 500}
# Images of each label, or their mean luminance, before and now; what is said of it.
DRIFT: dict[str, tuple[Any, Any, str]] = {
    "fractions change": (
        CATS_AND_DOGS,
        {"cat": 800, "dog": 200},
        r"class/text: 'cat': 80.0%, in the run of .* 50.0%; the limit is a diff.* 10.0%",
    ),
    "fractions change, but of few images": ({"cat": 10, "dog": 10}, {"cat": 14, "dog": 6}, ""),
    "a new label": (
        CATS_AND_DOGS,
        {**CATS_AND_DOGS, "emu": 2},
        r"class/text: 2 images have the label 'emu', but none did in the run of",
    ),
    "a label is gone": (
        {**CATS_AND_DOGS, "emu": 2},
        CATS_AND_DOGS,
        r"class/text: No image has the label 'emu' anymore, but 2 did in the run of",
    ),
    "brighter": (
        80,
        160,
        r"luminance: The values differ: 160.* on average, in the run of .* UTC 79",
    ),
}


@pytest.mark.parametrize(("before", "now", "text"), DRIFT.values(), ids=DRIFT)
def test_drift_between_runs(before: Any, now: Any, text: str, tmp_path: Path) -> None:
    finished(tmp_path / "first", sample(before))
    run = Run(tmp_path / "second", sample(now))
    run.validate()
    assert [finding.kind for finding in run.findings] == ["drift"] * bool(text)
    assert all(re.search(text, str(finding)) for finding in run.findings), run.findings
    run.pass_gate()
    if text:
        with pytest.raises(DataError, match=r"have changed: train: .*--validation.drift warn"):
            run.pass_gate(drift="stop")


def test_one_extreme_value_hides_no_drift(tmp_path: Path) -> None:
    """TFDV compares ten buckets of equal width by default; all usual values would be in one."""
    before, now = (
        statistics_of(
            ["cat", "dog"] * 150,
            FILE_SIZE=[
                *np.random.default_rng(mean).normal(mean, mean / 10, 299).astype(int),
                10**7,
            ],
        )
        for mean in (20_000, 40_000)
    )
    finished(tmp_path / "first", before)
    run = Run(tmp_path / "second", now)
    run.validate()
    [finding] = run.findings
    assert "file_size: The values differ" in str(finding)


def test_skew_between_splits(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", labelled(**CATS_AND_DOGS), labelled(cat=180, dog=20))
    run.validate()
    [finding] = run.findings
    assert (finding.split, finding.kind) == ("eval", "drift")
    assert finding.text.startswith("'cat': 90.0%, in train 50.0%")
    run.validate(ValidationConfig(drift="off"))
    assert run.findings == []


def test_samples_of_one_population_do_not_differ(tmp_path: Path) -> None:
    """Small and unequal splits, sizes that repeat, a file that is far larger than all others."""
    random = np.random.default_rng(0)
    for number in (6, 20, 100, 1000):
        splits = [
            statistics_of(
                random.choice(["a", "b", "c"], size).tolist(),
                HEIGHT=random.choice([100, 333, 375, 480, 500, 640], size),
                FILE_SIZE=np.exp(random.normal(10, 1, size)).astype(int),
                LUMINANCE=random.normal(100, 30, size),
            )
            for size in (number, max(2, number // 4))
        ]
        run = Run(tmp_path / str(number), *splits)
        run.validate()
        assert [f for f in run.findings if f.kind == "drift"] == []


def test_the_span_before_is_the_one_to_compare_with(tmp_path: Path) -> None:
    samples = {span: labelled(cat=500 + 10 * span, dog=500) for span in (1, 2, 3)}
    for span in (1, 3, 2):
        run = Run(tmp_path / f"span{span}", samples[span], span=span)
        add_to_history(run.history, run.statistics)
    names = {entry.span: str(entry.time) for entry in list_history(run.history)}
    assert sorted(names) == [1, 2, 3]

    def earlier(statistics: Statistics, span: int) -> str:
        run = Run(tmp_path / f"now{span}", statistics, span=span)
        return os.path.basename(find_earlier(run.history, looked_at(run.statistics)))

    assert earlier(labelled(cat=900, dog=500), 4) == names[3]
    assert earlier(samples[3], 3) == names[2]
    # A repaired span is compared with the one before, not with what it was.
    assert earlier(labelled(cat=900, dog=500), 2) == names[1]
    # Nothing is before the first: the last run will do.
    assert earlier(labelled(cat=900, dog=500), 1) == names[2]


def test_unchanged_examples_are_never_compared_with_themselves(tmp_path: Path) -> None:
    first = Run(tmp_path / "first", labelled(cat=30, dog=30), key="a")
    add_to_history(first.history, first.statistics)
    again = Run(tmp_path / "again", labelled(cat=30, dog=30), key="a")
    # The cache key of the first run, before which there was nothing.
    assert find_earlier(again.history, looked_at(again.statistics)) == ""
    add_to_history(again.history, again.statistics)
    assert len(list_history(again.history)) == 1


def test_a_run_that_only_warns_accepts_the_change(tmp_path: Path) -> None:
    finished(tmp_path / "before", labelled(cat=900, dog=100))
    for cats in (100, 900):
        run = Run(tmp_path / str(cats), labelled(cat=cats, dog=1000 - cats), key=str(cats))
        run.validate()
        with pytest.raises(DataError, match="have changed"):
            run.pass_gate(drift="stop")
        run.pass_gate(drift="warn")
        run.pass_gate(drift="stop")


def test_the_lookup_on_kubeflow_needs_no_statistics(tmp_path: Path) -> None:
    for key in ("a", "b"):
        run = Run(tmp_path / key, labelled(cat=len(key + key), dog=ord(key)), key=key)
        add_to_history(run.history, run.statistics)
    first, second = (os.path.join(run.history, str(e.time)) for e in list_history(run.history))
    given = {"statistics_history": run.history, "config": to_json(ValidationConfig())}
    for key, earlier in (("a", second), ("b", first), ("c", second)):
        examples = json.dumps({"span": None, "examples_key": key, "input_fingerprint": "f"})
        assert look_up({}, {**given, "examples": examples}) == {"found_statistics": earlier}


@pytest.mark.slow
def test_history_in_an_object_store(tmp_path: Path) -> None:
    before, now = (Run(tmp_path / str(n), labelled(cat=5, dog=n)) for n in (5, 6))
    with serve_s3("bucket"):
        folder = "minio://bucket/pipeline/statistics"
        assert find_earlier(folder, looked_at(now.statistics)) == ""
        add_to_history(folder, before.statistics)
        earlier = find_earlier(folder, looked_at(now.statistics))
        assert earlier.startswith(f"{folder}/")
        assert read_entry_statistics(earlier, "train") == labelled(cat=5, dog=5)
        assert read_entry_statistics(earlier, "eval") is None


def test_only_the_newest_entries_are_kept_and_only_complete_ones_count(tmp_path: Path) -> None:
    runs = [Run(tmp_path / name, labelled(cat=5, dog=n)) for n, name in ((5, "even"), (6, "odd"))]
    for number in range(33):
        add_to_history(runs[0].history, runs[number % 2].statistics)
    entries = list_history(runs[0].history)
    assert len(entries) == len(os.listdir(runs[0].history)) == 30
    Path(runs[0].history, str(entries[-1].time), "kept.json").unlink()
    assert list_history(runs[0].history) == entries[:-1]
    of_version_0_2 = {"time": entries[0].time, "span": 0, "digest": "f00", "examples_key": "k"}
    Path(runs[0].history, str(entries[0].time), "kept.json").write_text(json.dumps(of_version_0_2))
    assert list_history(runs[0].history)[0].examples_key == "k"


@pytest.mark.parametrize("content", [b"[]", b'{"time": "x"}', b"\xff"])
def test_a_damaged_entry_is_named(tmp_path: Path, content: bytes) -> None:
    files = {"kept.json": content, "Split-train/FeatureStats.pb": b"\xff"}
    entry = write_files(tmp_path / "1732310400", files)
    with pytest.raises(StorageError, match=f"{entry} are damaged .*. Remove that folder"):
        list_history(str(tmp_path))
    with pytest.raises(StorageError, match=f"{entry} are damaged .*. Remove that folder"):
        read_entry_statistics(str(entry), "train")


def test_columns_of_any_split_match_the_schema() -> None:
    def table(**columns: list[Any]) -> Statistics:
        data = {f"image/columns/{name}": values for name, values in columns.items()}
        return tfdv.generate_statistics_from_dataframe(pd.DataFrame(data))

    train = table(patient=["p1", "p2"], age=[0, 1], key=["1", "2"])
    test = table(patient=["p3", None], age=[7, 8], ward=["x", "y"])
    inferred, curated = tfdv.infer_schema(train), schema_pb2.Schema()
    correct_schema(inferred, train)
    for schema in (inferred, curated):
        add_columns(schema, [train, test])
        for statistics in (train, test):
            assert not tfdv.validate_statistics(statistics, schema).anomaly_info
    # What a curated schema says of a column stays.
    curated.feature[0].presence.min_fraction = 1
    add_columns(curated, [test])
    assert curated.feature[0].presence.min_fraction == 1

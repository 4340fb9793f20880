import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.contract.errors import ConfigurationError
from components.contract.example import COLUMNS, FILENAME, FORMAT, HEIGHT, LABEL, LUMINANCE, WIDTH
from components.ingest.config import IngestConfig
from components.ingest.lookup import list_images
from components.ingest.source.columns import describe_columns, keep_columns
from components.metrics.slices import choose_slices, describe_slices
from tests.ingest.test_listing import touch
from tests.ingest.test_manifest import write


def keep(*values: Any, parse: bool = False, name: str = "age") -> list[Any]:
    kept = keep_columns([{name: value} for value in values], source="m.csv", parse=parse)
    return [row.get(name) for row in kept]


TYPES: dict[str, tuple[list[Any], bool, list[Any]]] = {
    "text stays text": (["a", "b", None, ""], False, ["a", "b", None, None]),
    "numbers as text of a typed table": (["1", "2"], False, ["1", "2"]),
    "whole numbers of CSV": (["1", "-20", ""], True, [1, -20, None]),
    "one fraction makes a column of fractions": (["1", "2.5", "nan"], True, [1.0, 2.5, None]),
    "leading zeros are a key": (["007", "12"], True, ["007", "12"]),
    "so are numbers of many digits": (["1.5", "9" * 19], True, ["1.5", "9" * 19]),
    "one word makes a column of text": (["1", "left"], True, ["1", "left"]),
    "mixed types of JSON": ([1, 2.5, math.nan], False, [1.0, 2.5, None]),
    "booleans": ([True, False], False, ["true", "false"]),
    "beyond 64 bits": ([2**63, 1], False, [str(2**63), "1"]),
    "beyond float32": ([1e300, 1.0], False, ["1e+300", "1.0"]),
}


@pytest.mark.parametrize(("values", "parse", "expected"), TYPES.values(), ids=TYPES.keys())
def test_a_column_has_one_type(values: list[Any], parse: bool, expected: list[Any]) -> None:
    kept = keep(*values, parse=parse)
    assert (kept, [*map(type, kept)]) == (expected, [*map(type, expected)])


UNUSABLE = {
    "long": ("x" * 201, "more than 200 characters"),
    "bytes": (b"\xff\xd8", "neither text nor numbers"),
    "nested": ({"x": 1}, "neither text nor numbers"),
    "surrogate": ("\ud800", "unprintable"),
    "nothing": ("", "has no values"),
}


@pytest.mark.parametrize(("value", "reason"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_unusable_values_are_refused(value: Any, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=f"ingest.columns names 'age', but .*{reason}"):
        keep(value)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("size", "reserved"), ("Gerät", "letters from a to z"), ("x" * 65, "1 to 64 letters")],
)
def test_unusable_names_are_refused(name: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        keep(1, name=name)


ROWS: list[dict[str, Any]] = [
    {"path": "1.jpg", "label": "cat", "camera": "nikon", "patient": "p1", "thumb": "x"},
    {"path": "2.jpg", "label": "dog", "camera": None, "patient": "p1", "thumb": "y"},
    {"path": "2.jpg", "label": "dog", "camera": None, "patient": "p1", "thumb": "z"},
]


@pytest.mark.parametrize("name", ["m.csv", "m.jsonl", "m.parquet"])
def test_named_columns_of_a_manifest_are_kept(tmp_path: Path, name: str) -> None:
    folder = str(touch(tmp_path / "images", "1.jpg", "2.jpg"))
    manifest = write(tmp_path / name, [{**row, "on site": "x", "on_site": "y"} for row in ROWS])
    config = IngestConfig(manifest=manifest, columns=[])
    plain = list_images(folder, config)
    assert not any(file.columns for file in plain.files)
    listing = list_images(folder, dataclasses.replace(config, columns=["Camera", "patient"]))
    assert [file.columns for file in listing.files] == [
        {"camera": "nikon", "patient": "p1"},
        {"patient": "p1"},
    ]
    assert plain.fingerprint() != listing.fingerprint()
    for wanted, message in (
        (["thumb"], "'thumb', but .* has several values for one image"),
        (["on site"], "'on site', but .* has several: on site, on_site"),
        (["camra"], "'camra', but .* has no such column: it has path, label, camera"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            list_images(folder, dataclasses.replace(config, columns=wanted))


def test_columns_need_a_manifest() -> None:
    with pytest.raises(ConfigurationError, match=r"there is no ingest.manifest"):
        IngestConfig(columns=["site"])


def test_columns_are_slicings() -> None:
    rows: list[dict[str, Any]] = [{"age": age, "camera": "a", "span": age} for age in range(40)]
    rows += [{"ward": f"w{number}"} for number in range(31)]
    columns = describe_columns(rows)
    assert columns["age"] == {"type": "int", "bounds": [9, 19, 29]}
    assert choose_slices(["columns", "class"], columns) == ["age", "camera", "span", "class"]
    assert choose_slices(["ward"], columns) == ["ward"]
    with pytest.raises(ConfigurationError, match=r"'camra', but it must be one of class, .*camera"):
        choose_slices(["camra"], columns)
    texts = dict.fromkeys((FILENAME, FORMAT, LABEL), np.array([b"x"] * 3, object))
    numbers = dict.fromkeys((HEIGHT, WIDTH, LUMINANCE), np.ones(3))
    age, span = np.array([8, 9, -(2**63)]), np.array([39, 38, 0])
    camera = np.array([b"a", b"", b"b"], object)
    features = {COLUMNS + "age": age, COLUMNS + "camera": camera, COLUMNS + "span": span}
    used = {name: columns[name] for name in ("age", "camera", "span")}
    slices = describe_slices({**texts, **numbers, **features}, used)
    assert slices["age"] == ["under 9", "9 to under 19", "not given"]
    assert slices["camera"] == ["a", "not given", "b"]
    assert slices["span"] == ["newest", "earlier", "earlier"]

import dataclasses
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.contract.errors import ConfigurationError, UserError
from components.contract.example import COLUMNS, FILENAME, FORMAT, HEIGHT, LABEL, LUMINANCE, WIDTH
from components.ingest.config import IngestConfig
from components.ingest.lookup import list_images
from components.ingest.source.listing import Listing
from components.ingest.source.manifest import read_manifest
from components.ingest.source.values import describe_columns, keep_columns
from components.metrics.slices import choose_slices, describe_slices
from components.storage.folder_listing import MISSING
from tests.ingest.test_listing import touch

ROWS: list[dict[str, str | None]] = [
    {"path": "a/1.jpg", "label": "cat", "split": "train", "group": "film 1"},
    {"path": "./b/2.jpg", "label": "dog, large", "split": "validation", "group": None},
    {"path": "3.jpg", "label": "7", "split": None, "group": None},
]


def write(path: Path, rows: list[dict[str, str | None]]) -> str:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        quoted = [",".join(f'"{value or ""}"' for value in row.values()) for row in rows]
        path.write_text("\ufeff" + "\r\n".join([",".join(rows[0]), *quoted]))
    return str(path)


@pytest.mark.parametrize("name", ["m.csv", "m.jsonl", "m.parquet", "M.CSV"])
def test_reads_every_format(tmp_path: Path, name: str) -> None:
    rows = read_manifest(write(tmp_path / name, ROWS))
    assert {path: row[:3] for path, row in rows.items()} == {
        "a/1.jpg": ("cat", "train", "film 1"),
        "b/2.jpg": ("dog, large", "eval", None),
        "3.jpg": ("7", None, None),
    }


SPREADSHEETS = {
    "semicolons": "path;label;split\n1.jpg;dog, large;dev\n",
    "tabs": "path\tlabel\tsplit\n1.jpg\tdog, large\tdev\n",
    "blanks and capitals": 'Path, Label , Split\n1.jpg, "dog, large", dev\n',
}


@pytest.mark.parametrize("content", SPREADSHEETS.values(), ids=SPREADSHEETS.keys())
@pytest.mark.parametrize("name", ["m.csv", "m.tsv", "m.txt"])
def test_reads_what_spreadsheets_write(tmp_path: Path, name: str, content: str | bytes) -> None:
    (tmp_path / name).write_bytes(os.fsencode(content))
    assert read_manifest(str(tmp_path / name)) == {"1.jpg": ("dog, large", "eval", None, {})}


def listed(folder: Path, manifest: Path | str, **options: Any) -> Listing:
    return list_images(str(folder), IngestConfig(manifest=str(manifest), **options))


def test_labels_come_from_the_manifest(tmp_path: Path) -> None:
    touch(tmp_path / "images", "a/1.jpg", "b/2.jpg", "other.jpg", "a/.hidden")
    listing = listed(tmp_path / "images", write(tmp_path / "m.csv", ROWS))
    assert [(f.path, f.label, f.split, f.group) for f in listing.files] == [
        ("3.jpg", "7", None, None),
        ("a/1.jpg", "cat", "train", "film 1"),
        ("b/2.jpg", "dog, large", "eval", None),
    ]
    assert listing.files[0].version == MISSING
    assert listing.skipped == {"a/.hidden": "hidden", "other.jpg": "not in the manifest"}
    for change in ({"label": "dog"}, {"split": "eval"}, {"group": "film 2"}):
        other = write(tmp_path / "other.csv", [{**ROWS[0], **change}, *ROWS[1:]])
        assert listed(tmp_path / "images", other).fingerprint() != listing.fingerprint()


def test_a_split_that_one_row_gives_binds_the_whole_group(tmp_path: Path) -> None:
    rows = [("film 1", None), ("film 1", "test"), ("film 2", None), ("", "train"), ("", "test")]
    table: list[dict[str, str | None]] = [
        {"path": f"{number}.jpg", "label": "cat", "split": split, "group": group}
        for number, (group, split) in enumerate(rows)
    ]
    listing = listed(touch(tmp_path / "images", "0.jpg"), write(tmp_path / "m.csv", table))
    assert [file.split for file in listing.files] == ["test", "test", None, "train", "test"]


MISTAKES: dict[str, tuple[str, str | bytes | None, str]] = {
    "no such file": ("m.csv", None, r"Cannot read .*m\.csv: No such file or directory\.$"),
    "unknown format": ("m.xls", "path,label\n", r"must end in one of \.csv"),
    "no rows": ("m.csv", "path,label\n", "has no rows"),
    "URLs": ("m.csv", "path,label\ngs://b/1.jpg,c\n", "'gs://b/1.jpg': write paths relative to"),
    "too few fields": ("m.csv", "label,path,split\ncat,a/1\n\ncat\n", "Row 2 .* has no path\\.$"),
    "no label column": ("m.csv", "path,class\na.jpg,cat\n", "first line must be .* 'path,class'"),
    "nothing": ("m.csv", "", "Cannot read the manifest .*: it is empty"),
    "another key": ("m.jsonl", '{"file": "a/1.jpg", "label": "a"}', "no path; it has file, label"),
    "a comma in a path": ("m.csv", "path,label\na,b.jpg,cat\n", "Row 1 .* too many fields"),
    "Latin-1": ("m.csv", b"path,label\na,caf\xe9\n", "not UTF-8 text: save it as UTF-8"),
    "UTF-16": ("m.csv", "path,label\na,b".encode("utf-16"), "not UTF-8 text: save it as UTF-8"),
    "UTF-16 without a mark": ("m.csv", "path,label\n".encode("utf-16-le"), "first line must be"),
    "empty path": ("m.csv", "path,label\na.jpg,cat\n,cat\n", "Row 2 .* has no path"),
    "two labels": ("m.csv", "path,label\na,cat\n./a,dog\n", "Row 2 .* contradicts .* 'a': 'dog'"),
    "a page as a path": ("m.csv", "path,label\n" + "x" * 9000 + ",b\n", "None of the paths"),
    "no JSON": ("m.jsonl", "path,label\n", "Cannot read the manifest"),
    "no Parquet": ("m.parquet", "path,label\n", "Cannot read the manifest"),
}


@pytest.mark.parametrize(("name", "content", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_are_named(
    tmp_path: Path, name: str, content: str | bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(os.fsencode(content))
    with pytest.raises(UserError, match=message) as caught:
        listed(touch(tmp_path / "images", "a/1"), tmp_path / name)
    assert len(str(caught.value)) < 1000


def test_which_files_a_row_may_name(tmp_path: Path) -> None:
    """Hidden ones, but none that is excluded or lies outside."""
    folder = touch(tmp_path / "images", ".a/1.jpg", "Thumbs.db", "b/2.jpg", "b/3.jpg", ".c")
    os.mkfifo(folder / "pipe")
    outside = ("../secret.jpg", f"{touch(tmp_path, 'secret.jpg')}/secret.jpg")
    rows = [f"{name},cat" for name in (".a/1.jpg", "Thumbs.db", "b/2.jpg", "pipe", *outside)]
    (tmp_path / "m.csv").write_text("\n".join(["path,label", *rows]))
    listing = listed(folder, tmp_path / "m.csv", exclude=["b"])
    existing = [file.path for file in listing.files if file.version != MISSING]
    assert (existing, len(listing.files)) == ([".a/1.jpg", "Thumbs.db"], 5)
    skipped = {"b/2.jpg": "excluded", "b": "excluded", ".c": "hidden"}
    assert listing.skipped == skipped


class Intruder(pa.PyExtensionType):
    """A type of Python's, which a reader of the file would unpickle."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(pa.string())

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self.path, "w")


@pytest.mark.filterwarnings("ignore:pyarrow.PyExtensionType is deprecated")
def test_a_parquet_file_runs_no_code(tmp_path: Path) -> None:
    column = pa.array(["red/1.png"])
    odd = pa.ExtensionArray.from_storage(Intruder(str(tmp_path / "mark")), column)
    pq.write_table(pa.table({"path": column, "label": odd}), tmp_path / "m.parquet")
    with pytest.raises(UserError, match="Cannot read the manifest"):
        read_manifest(str(tmp_path / "m.parquet"))
    assert not (tmp_path / "mark").exists()


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


COLUMN_ROWS: list[dict[str, Any]] = [
    {"path": "1.jpg", "label": "cat", "camera": "nikon", "patient": "p1", "thumb": "x"},
    {"path": "2.jpg", "label": "dog", "camera": None, "patient": "p1", "thumb": "y"},
    {"path": "2.jpg", "label": "dog", "camera": None, "patient": "p1", "thumb": "z"},
]


@pytest.mark.parametrize("name", ["m.csv", "m.jsonl", "m.parquet"])
def test_named_columns_of_a_manifest_are_kept(tmp_path: Path, name: str) -> None:
    folder = str(touch(tmp_path / "images", "1.jpg", "2.jpg"))
    manifest = write(
        tmp_path / name, [{**row, "on site": "x", "on_site": "y"} for row in COLUMN_ROWS]
    )
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

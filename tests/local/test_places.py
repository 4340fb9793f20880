from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from components.contract.errors import ConfigurationError, StorageError
from pipeline_def.config.config import Config
from pipeline_def.local.output.locations import locate
from pipeline_def.local.preparation import check_writable, make_absolute


@pytest.mark.parametrize(
    "place", ["gs://b/x", "s3://b", "minio://b/x", "memory://images", "gs://b/day-{SPAN}"]
)
def test_a_store_stays_as_it_is(place: str) -> None:
    assert locate(place, "data", None) == place


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("x", "x"),
        ("/x/../y", "/y"),
        ("file:///x", "/x"),
        ("a:b/c", "a:b/c"),
        ("x-{SPAN}", "x-{SPAN}"),
    ],
)
def test_a_folder_becomes_absolute(place: str, path: str) -> None:
    for schemes in (None, ()):
        assert locate(place, "data", schemes) == os.path.abspath(path)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("ftp://host/x", "use a local folder or a URL with gs://"),
        ("https://host/x", "is not supported"),
        ("nonsense://x", "is not supported"),
        ("gs:/b", "write it as gs://b"),
        ("gs:///b", "write it as gs://b"),
        ("gs://", "write it as gs://bucket/folder"),
    ],
)
def test_what_is_no_place(place: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        locate(place, "data", None)
    with pytest.raises(ConfigurationError, match=r"--output is .*, which is not supported"):
        locate(place, "output", ())


@pytest.mark.parametrize("way", ["data", "output", "file://", "file:// data", ".."])
def test_no_way_leads_to_an_output_among_the_images(tmp_path: Path, way: str) -> None:
    data, link = tmp_path / "images", tmp_path / "link"
    (data / "red").mkdir(parents=True)
    link.symlink_to(data if way == "data" else data / "red")
    named, output = {
        "data": (str(link), f"{data}/out"),
        "output": (str(data), f"{link}/out"),
        "file://": (str(data), f"file://{data}/out"),
        "file:// data": (f"file://{data}", f"{data}/out"),
        "..": (str(data), f"{tmp_path}/other/../images/out"),
    }[way]
    with pytest.raises(ConfigurationError, match="lies in --data"):
        make_absolute(Config(data=named, output=output))


def test_an_output_beside_the_images(tmp_path: Path) -> None:
    for output in ("images-out", "images/../out", "file:out"):
        make_absolute(Config(data=str(tmp_path / "images"), output=str(tmp_path / output)))


def test_a_path_that_sqlite_does_not_open_is_refused_at_once(tmp_path: Path) -> None:
    """At 504 bytes, with ML Metadata's name at its end, a database can be made; at 505 no more."""
    long = f"{tmp_path}/{'d' * 120}/{'d' * 120}/"
    for size in (504, 505):
        name = "é" + "x" * (size - len(os.fsencode(long)) - len("é/metadata.sqlite".encode()))
        too_long = pytest.raises(
            StorageError, match=r"has 505 bytes, but SQLite .* choose a shorter path"
        )
        with too_long if size == 505 else contextlib.nullcontext():
            check_writable(long + name)
            sqlite3.connect(f"{long}{name}/metadata.sqlite").execute("CREATE TABLE t (c)")


@pytest.mark.parametrize("option", ["data", "output"])
def test_a_path_that_is_no_text_is_refused_by_every_command(option: str) -> None:
    places: dict[str, Any] = {"data": "/images", "output": "/out", option: os.fsdecode(b"/x\xff")}
    config = Config(**places)
    with pytest.raises(ConfigurationError, match=f"--{option} is .* not UTF-8"):
        make_absolute(config)

"""Output folders whose bookkeeping is damaged, foreign or gone."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from components.contract.errors import StorageError
from pipeline_def.layout import Layout
from pipeline_def.local.output.checks import check_metadata, find_problem, set_leftovers_aside
from tests.conftest import Refusal


def write_store(path: Path, table: str) -> Path:
    with contextlib.closing(sqlite3.connect(path)) as store:
        store.execute(f"CREATE TABLE {table} (number INTEGER, text TEXT)")
        store.executemany(
            f"INSERT INTO {table} VALUES (?, ?)", [(n, "x" * 100) for n in range(500)]
        )
        store.commit()
    return path


def damage(path: Path, how: str) -> None:
    if how == "a folder":
        path.mkdir()
        return
    write_store(path, "Photos" if how == "another program's" else "MLMDEnv")
    content = path.read_bytes()
    if how == "garbage":
        path.write_bytes(os.urandom(5_000))
    elif how == "cut short":
        path.write_bytes(content[: len(content) // 2])
    elif how == "overwritten":
        path.write_bytes(content[:8192] + b"\xff" * 8192 + content[16384:])


@pytest.mark.parametrize(
    "how", ["garbage", "cut short", "overwritten", "a folder", "another program's"]
)
def test_damaged_metadata_is_seen(tmp_path: Path, how: str) -> None:
    layout = Layout(str(tmp_path))
    (tmp_path / "empty").touch()
    good = (write_store(tmp_path / "store", "MLMDEnv"), tmp_path / "none", tmp_path / "empty")
    assert [find_problem(str(path)) for path in good] == [""] * 3
    damage(Path(layout.metadata), how)
    with pytest.raises(StorageError, match=r"metadata.sqlite cannot be used: .*Move it away"):
        check_metadata(layout)


def test_damaged_metadata_is_one_sentence_and_a_way_out(
    tmp_path: Path, refusal: Refusal, image_folder: Path
) -> None:
    layout = Layout(str(tmp_path / "out"))
    (tmp_path / "out" / "artifacts" / "Trainer").mkdir(parents=True)
    (tmp_path / "out" / "checkpoints" / "of earlier images").mkdir(parents=True)
    damage(Path(layout.metadata), "garbage")
    sentence = refusal("--data", image_folder, "--output", layout.output)
    assert f"{layout.metadata} cannot be used: " in sentence
    assert "Move it away, and run again: the next run starts over; pushed models stay." in sentence

    Path(layout.metadata).unlink()
    said = set_leftovers_aside(layout)
    assert f"artifacts and checkpoints in {layout.output} had no metadata; they were moved" in said
    [aside] = Path(layout.output).glob("set-aside-*")
    assert os.listdir(aside / "artifacts") == ["Trainer"]
    assert os.listdir(aside / "checkpoints") == ["of earlier images"]
    assert not os.path.exists(layout.artifacts)
    assert set_leftovers_aside(layout) == ""


KILLED = """
import os, sqlite3, sys
store = sqlite3.connect(sys.argv[1], isolation_level=None)
store.execute("PRAGMA cache_size = 1")
store.execute("BEGIN")
store.execute("UPDATE MLMDEnv SET text = 'changed'")
os.kill(os.getpid(), 9)
"""


def test_a_kill_within_a_transaction_is_no_damage(tmp_path: Path) -> None:
    path = write_store(tmp_path / "metadata.sqlite", "MLMDEnv")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "metadata.sqlite-journal").stat().st_size
    assert find_problem(str(path)) == ""
    with contextlib.closing(sqlite3.connect(path)) as store:
        assert store.execute("SELECT DISTINCT text FROM MLMDEnv").fetchall() == [("x" * 100,)]

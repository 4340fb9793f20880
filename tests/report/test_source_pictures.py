"""Pictures of rejected files, from a folder or a bucket."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.gcs_server import GcsServer
from components.contract.example import REJECTS_FILE
from components.images.thumbnails import make_thumbnail
from components.report.pictures import source_pictures
from components.report.pictures.source_pictures import show_rejects
from tests.pictures import encode, picture
from tests.storage.gs_client import point_to

JPEG = encode(picture(1), "JPEG")


def write_lines(folder: Path, name: str, lines: Sequence[dict[str, Any]]) -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(folder)


def reject(path: str) -> dict[str, str]:
    return {"path": path, "category": "truncated", "reason": "JPEG: cut off"}


NO_PICTURE = {
    "above the folder": "../outside.jpg",
    "from the root": "{root}/outside.jpg",
    "gone": "cat/gone.jpg",
    "a folder": "cat",
    "a pipe": "pipe.jpg",
    "too large": "large.jpg",
}


@pytest.mark.parametrize("path", NO_PICTURE.values(), ids=NO_PICTURE.keys())
def test_unreadable_files_do_not_affect_others(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_pictures, "_MOST_BYTES", 10_000)
    root = tmp_path / "images"
    (root / "cat").mkdir(parents=True)
    for name in ("outside.jpg", "images/good.jpg"):
        (tmp_path / name).write_bytes(JPEG)
    (root / "large.jpg").write_bytes(JPEG + bytes(10_000))
    os.mkfifo(root / "pipe.jpg")
    lines = [reject(path.format(root=tmp_path)), reject("good.jpg")]
    uri = write_lines(tmp_path / "rejects", REJECTS_FILE, lines)
    bad, good = show_rejects(uri, str(root), most=9)
    assert bad.picture is None
    assert good.picture == make_thumbnail(JPEG)


@pytest.mark.parametrize("root", ["/nowhere/at/all", "gopher://host/images"])
def test_an_unreachable_folder_leaves_the_texts(root: str, tmp_path: Path) -> None:
    uri = write_lines(tmp_path / "rejects", REJECTS_FILE, [reject("1.jpg"), reject("2.jpg")])
    found = show_rejects(uri, root, most=9)
    assert [(entry.path, entry.picture) for entry in found] == [("1.jpg", None), ("2.jpg", None)]


def test_reading_stops_at_the_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each look at the clock takes a second; a batch is read for every look but the first.
    clock = iter(range(100))
    ticking = SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr("components.report.pictures.source_pictures.time", ticking)
    monkeypatch.setattr(source_pictures, "_TOTAL_SECONDS", 2)
    names = [f"{number}.jpg" for number in range(3 * 8)]
    for name in names:
        (tmp_path / name).write_bytes(JPEG)
    uri = write_lines(tmp_path / "rejects", REJECTS_FILE, list(map(reject, names)))
    found = show_rejects(uri, str(tmp_path), most=99)
    assert [entry.picture is not None for entry in found] == [True] * 16 + [False] * 8


@pytest.fixture
def server() -> Iterator[GcsServer]:
    """A Cloud Storage server that every gs:// of the test goes to."""
    with GcsServer() as server, point_to(server):
        yield server


def test_files_of_a_bucket_are_shown(server: GcsServer, tmp_path: Path) -> None:
    for name, data in {"a b#1.jpg": JPEG, "empty.jpg": b"", "refused.jpg": JPEG}.items():
        server.put("bucket", f"images/cat/{name}", data)
    server.faults["images/cat/refused.jpg"] = [403]
    names = ["cat/a b#1.jpg", "cat/empty.jpg", "cat/refused.jpg", "cat/gone.jpg"]
    uri = write_lines(tmp_path / "rejects", REJECTS_FILE, list(map(reject, names)))
    found = show_rejects(uri, "gs://bucket/images/", most=9)
    assert [entry.picture for entry in found] == [make_thumbnail(JPEG), None, None, None]


def test_an_unresponsive_store_times_out(
    server: GcsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_pictures, "_BATCH_SECONDS", 0.2)
    server.put("bucket", "images/1.jpg", JPEG)
    server.latency_ms = 3_000
    uri = write_lines(tmp_path / "rejects", REJECTS_FILE, [reject("1.jpg")])
    [found] = show_rejects(uri, "gs://bucket/images", most=9)
    assert found.picture is None

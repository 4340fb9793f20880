from pathlib import Path

import pytest

from benchmarks.gcs_server import GcsServer, objects
from components.storage.folder import open_folder
from components.storage.folder_listing import find_files
from tests.storage.gs_client import point_to

NAMES = [
    "loose.jpg",
    *(f"train/cat/{number}.jpg" for number in range(9)),
    *("train/dog/deep/1.jpg", "train/3.jpg", "test/cat/1.jpg", "train2/x.jpg"),
    *(f"label {number}/1.jpg" for number in range(4)),
]


@pytest.mark.parametrize("page", [4, 1000], ids=["many pages", "one page"])
@pytest.mark.parametrize("folder", ["", "train"])
def test_all_objects_are_listed_once(
    page: int, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "PAGE", page)
    (tmp_path / "data").mkdir()
    with GcsServer({"data": tmp_path / "data"}) as server, point_to(server):
        fs, _ = open_folder("gs://data")
        for name in NAMES:
            fs.pipe_file(f"data/{name}", b"an image")
        found = find_files(f"gs://data/{folder}".rstrip("/"))
    below = f"{folder}/".lstrip("/")
    assert [one.path for one in found] == sorted(
        name.removeprefix(below) for name in NAMES if name.startswith(below)
    )
    assert {(one.size, one.problem, one.checksum[:7]) for one in found} == {(8, "", "crc32c:")}

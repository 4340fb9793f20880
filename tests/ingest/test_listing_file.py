from __future__ import annotations

import os
from pathlib import Path

import fsspec
import pytest

from components.contract.errors import StorageError
from components.ingest.listing import ImageFile, Listing, Skipped
from components.ingest.lookup import read_listing, write_listing


def listing(number: int = 0) -> Listing:
    files = (
        ImageFile("cat/caf\udce9.jpg", "cat", None, 7, "1700000000000000001", "film", "md5:x"),
        ImageFile(f"dog/line\n{number}.jpg", "dog", "test", 7, '"etag"'),
    )
    skipped = (Skipped("новый.txt", "in no label folder"),)
    return Listing("gs://bucket/images", files, skipped, {"eval": 0.1, "train": 0.9}, "A note.")


@pytest.mark.parametrize("store", ["", "memory://store"])
def test_what_is_written_is_read(tmp_path: Path, store: str) -> None:
    folder = f"{store or tmp_path}/new/listings"
    path = write_listing(listing(), folder)
    assert path.startswith(f"{folder}/")
    assert read_listing(path) == listing()
    fs, place = fsspec.core.url_to_fs(path)
    before = fs.cat_file(place)
    assert write_listing(listing(), folder) == path
    assert fs.cat_file(place) == before
    assert write_listing(listing(1), folder) != path


def test_the_ten_newest_are_kept(tmp_path: Path) -> None:
    written = []
    for number in range(12):
        written.append(Path(write_listing(listing(number), str(tmp_path))))
        os.utime(written[-1], (number, number))
        if number == 9:
            # What is used again counts as new.
            assert Path(write_listing(listing(0), str(tmp_path))) == written[0]
    assert {path.name for path in tmp_path.iterdir()} == {
        path.name for number, path in enumerate(written) if number not in (1, 2)
    }


def test_an_incomplete_listing_is_named(tmp_path: Path) -> None:
    path = Path(write_listing(listing(), str(tmp_path)))
    path.write_bytes(path.read_bytes()[:-20])
    for wrong in (str(path), str(tmp_path / "none.jsonl.gz")):
        with pytest.raises(StorageError, match=f"Cannot read the listing {wrong} .*: run again"):
            read_listing(wrong)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match=r"Cannot write a listing to .*file"):
        write_listing(listing(), str(tmp_path / "file"))

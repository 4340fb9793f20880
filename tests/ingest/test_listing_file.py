from __future__ import annotations

import os
import shutil
from pathlib import Path

import fsspec
import pytest

from components.contract.configuration import to_json
from components.contract.errors import StorageError
from components.ingest.config import IngestConfig
from components.ingest.listing import ImageFile, Listing, Skipped, read_listing, write_listing
from components.ingest.lookup import look_up
from components.storage.fetch import Unread, read_files


def listing(number: int = 0) -> Listing:
    files = (
        ImageFile("cat/caf\udce9.jpg", "cat", None, 7, "1700000000000000001", "film", "md5:x"),
        ImageFile(f"dog/line\n{number}.jpg", "dog", "test", 7, '"etag"'),
    )
    skipped = (Skipped("новый.txt", "in no label folder"),)
    own = {"cat": {"eval": 0.2, "train": 0.8}}
    fractions = {"eval": 0.1, "train": 0.9}
    return Listing("gs://bucket/images", files, skipped, fractions, own, "manifest", ("A note.",))


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


def look_up_content(folder: Path) -> str:
    config = to_json(IngestConfig(fingerprint="content"))
    properties = {"input_base": str(folder), "config": config, "listings": f"{folder}/../listings"}
    found = look_up({}, properties)
    listed = read_listing(found["listing"])
    contents = [content for _, content in read_files(listed.root, listed.files, IngestConfig())]
    assert not any(isinstance(content, Unread) for content in contents)
    # A file that has changed since is not read, though its size and time are the same.
    wrong = [listed.files[0]._replace(checksum="md5:x")]
    [(_, content)] = read_files(listed.root, wrong, IngestConfig())
    assert isinstance(content, Unread)
    return str(found["input_fingerprint"])


def test_the_content_alone_counts_if_it_is_read(image_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(image_folder, tmp_path / "images"))
    before = look_up_content(folder)
    copy = Path(shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copyfile))
    assert look_up_content(copy) == before
    first, second = sorted(copy.rglob("*.*"))[:2]
    first.write_bytes(second.read_bytes())
    assert look_up_content(copy) != before


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

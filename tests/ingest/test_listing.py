import contextlib
import dataclasses
import errno
import os
import shutil
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import fsspec
import pytest

from components.contract.configuration import to_json
from components.contract.errors import DataError, StorageError
from components.ingest.config import IngestConfig
from components.ingest.lookup import list_images, list_source, look_up
from components.ingest.source.listing import ImageFile, Listing, read_listing, write_listing
from components.predict.files import find_sources
from components.storage import row_table
from components.storage.fetch import Unread, read_files
from components.storage.folder_listing import find_files, local_version
from tests.files import write_files


def touch(folder: Path, *paths: str) -> Path:
    return write_files(folder, {path: os.fsencode(path) for path in paths})


def test_what_is_hidden_loose_left_by_systems_or_no_image_is_skipped(tmp_path: Path) -> None:
    hidden = [".DS_Store", "cat/.hidden.jpg", ".git/config"]
    systems = ["lost+found", "$RECYCLE.BIN", "System Volume Information", "cat/@eaDir", "#recycle"]
    files = ["cat_$folder$", "cat/Thumbs.DB", "dog/1.jpg_$folder$"]
    sidecars = [
        f"cat/1{end}" for end in (".json", ".jpg.xmp", ".jpg.dvc", ".aux.xml", ".tfw", ".TXT")
    ]
    touch(tmp_path, "cat/1.jpg", "dog/1", "readme.txt", *hidden, *files, *sidecars)
    touch(tmp_path, *(f"{top}/a/1.jpg" for top in systems))
    os.mkfifo(tmp_path / "dog/pipe.jpg")
    listing = list_images(str(tmp_path))
    assert [file.path for file in listing.files] == ["cat/1.jpg", "dog/1"]
    assert listing.skipped == {
        **dict.fromkeys(hidden, "hidden"),
        **dict.fromkeys([*systems, *files], "left by the system"),
        **dict.fromkeys(sidecars, "not an image by its name"),
        "dog/pipe.jpg": "not a regular file",
        "readme.txt": "not inside a label folder",
    }
    # A manifest may name anything.
    (tmp_path / "m.csv").write_text("path,label\ncat/1.TXT,cat")
    touch(tmp_path, "cat/features.npz").joinpath("cat/1.jpg").unlink()
    named = list_images(str(tmp_path), IngestConfig(manifest=str(tmp_path / "m.csv")))
    assert [file.path for file in named.files] == ["cat/1.TXT"]


def test_unreadable_folders_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "cat/1.jpg", "dog/1.jpg", "fox/1.jpg", ".Trash-0/1.jpg", "mount/1.jpg")
    scandir = os.scandir
    failures = {"fox": errno.EACCES, ".Trash-0": errno.EACCES, "mount": errno.EIO}

    def refuse(folder: str) -> Any:
        name = os.path.basename(folder)
        if name in failures:
            raise OSError(failures[name], os.strerror(failures[name]), folder)
        return scandir(folder)

    # Root may read everything.
    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(StorageError, match=r"Cannot list .*/mount: Input/output error"):
        list_images(str(tmp_path))
    listing = list_images(str(tmp_path), IngestConfig(exclude=["mount"]))
    reasons = {".Trash-0": "hidden", "fox": "no permission to read", "mount": "excluded"}
    assert listing.skipped == reasons
    assert listing.notes[-1] == "Skipped for lack of permission to read: fox."
    with pytest.raises(StorageError, match=r"Cannot list .*/mount"):
        find_sources([str(tmp_path)])
    del failures["mount"]
    [source] = find_sources([str(tmp_path)])
    assert [entry.file.path for entry in source.entries if not entry.skipped] == [
        *("cat/1.jpg", "dog/1.jpg", "mount/1.jpg")
    ]
    with pytest.raises(StorageError, match=r"Cannot list .*/\.Trash-0"):
        find_files(str(tmp_path))


def test_who_may_not_read_all() -> None:
    """Folders, links and neighbors without permission end nothing, as root cannot see."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as afterwards:
        root = touch(Path(folder), "cat/1.jpg", "dog/1.jpg", "fox/in/1.jpg", "lost+found/1")
        (root / "link").symlink_to(root / "fox/in")
        root.chmod(0o755)
        for locked in (root / "fox", root / "lost+found"):
            locked.chmod(0)
            afterwards.callback(locked.chmod, 0o755)
        if os.geteuid() == 0:
            os.seteuid(65534)
            afterwards.callback(os.seteuid, 0)
        listing = list_images(folder)
    reasons = dict.fromkeys(("fox", "link"), "no permission to read")
    assert listing.skipped == {**reasons, "lost+found": "left by the system"}


def test_each_folder_that_links_lead_to_is_listed_once(tmp_path: Path) -> None:
    outside = touch(tmp_path / "outside", "2.jpg", "deep/3.jpg")
    images = touch(tmp_path / "images", "cat/1.jpg", "dog/1.jpg")
    links = {
        "cat/a": outside,
        "cat/b": outside / "deep",
        "cat/gone.jpg": tmp_path / "nothing",
        "dog/all": Path("/"),
        "dog/itself": images / "dog",
        "dog/one.jpg": images / "cat/1.jpg",
        "fox": outside,
        "up": tmp_path,
    }
    for path, target in links.items():
        (images / path).symlink_to(target)
    (outside / "round").symlink_to(images)
    listing = list_images(str(images))
    assert [file.path for file in listing.files] == [
        *("cat/1.jpg", "cat/a/2.jpg", "cat/a/deep/3.jpg", "cat/gone.jpg"),
        *("dog/1.jpg", "dog/one.jpg", "fox/2.jpg", "fox/deep/3.jpg"),
    ]
    above, again = "above the images", "that is listed already"
    reasons = {"cat/a/round": above, "cat/b": again, "dog/all": above, "dog/itself": again}
    reasons |= {"fox/round": above, "up": above}
    assert listing.skipped == {p: f"a link to a folder {r}" for p, r in reasons.items()}


@pytest.mark.parametrize("most", [3, 1000], ids=["in a file", "in memory"])
def test_odd_names_are_sorted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(row_table, "MOST_IN_MEMORY", most)
    names = ["a", "a-b", "a.b", "a b", "a0", "\udce9", "é", ".h", "~"]
    inside = [f"{top}/{inner}/{top}.jpg" for top in names for inner in names]
    linked = [f"a/a+link/{name}/1.jpg" for name in names]
    images = touch(tmp_path / "images", *inside, *(f"{name}!" for name in names))
    outside = touch(tmp_path / "outside", *(f"{name}/1.jpg" for name in names))
    (images / "a/empty").mkdir()
    (images / "a/a+link").symlink_to(outside)
    for link in ("a/a-link", "a-link"):
        (images / link).symlink_to(images)
    above = "a link to a folder above the images"
    expected = [(path, above, 0, "", "") for path in ("a/a-link", "a-link")]
    for path in (*inside, *linked, *(f"{name}!" for name in names)):
        status = os.stat(images / path)
        expected.append((path, "", status.st_size, local_version(status), ""))
    assert [*find_files(str(images))] == sorted(expected)


def test_two_labels_of_a_split_cannot_be_one_folder(tmp_path: Path) -> None:
    outside = touch(tmp_path / "outside", "1.jpg")
    images = touch(tmp_path / "images", "train/fox/1.jpg", "test/fox/1.jpg", "test/cat/1.jpg")
    for label in ("cat", "dog"):
        (images / "train" / label).symlink_to(outside)
    with pytest.raises(DataError, match=r"train/dog is a link to a folder .* listed already"):
        list_images(str(images))
    listing = list_images(str(images), IngestConfig(exclude=["train/dog"]))
    assert "train/cat/1.jpg" in [file.path for file in listing.files]


def test_fingerprint_changes_with_the_folder(tmp_path: Path) -> None:
    """Also where TFX's own sees nothing: another label, or the same size and time."""
    touch(tmp_path, *(paths := ["cat/1.jpg", "cat/3.jpg", "dog/1.jpg"]))
    for path in paths:
        os.utime(tmp_path / path, (7, 7))
    seen = [list_images(str(tmp_path)).fingerprint()]
    assert list_images(str(tmp_path)).fingerprint() == seen[0]

    def look() -> None:
        seen.append(list_images(str(tmp_path)).fingerprint())
        # Times on disk advance in steps of some milliseconds.
        time.sleep(0.02)

    time.sleep(0.02)
    # Two files change places, as archives leave them.
    for source, target in (("cat/1", "other"), ("dog/1", "cat/1"), ("other", "dog/1")):
        (tmp_path / f"{source}.jpg").rename(tmp_path / f"{target}.jpg")
    look()
    (tmp_path / "cat/3.jpg").write_bytes(b"x" * 9)
    os.utime(tmp_path / "cat/3.jpg", (7, 7))
    look()
    os.utime(tmp_path / "cat/1.jpg", (1, 1))
    look()
    (tmp_path / "cat/1.jpg").rename(tmp_path / "dog/2.jpg")
    look()
    assert len({*seen}) == 5


def test_a_fingerprint_covers_each_fact_of_a_file(tmp_path: Path) -> None:
    listing = list_images(str(touch(tmp_path, "cat/1.jpg", "dog/1.jpg")))
    first, last = listing.files
    changes: dict[str, Any] = {**dict.fromkeys(("path", "label", "split", "group"), "x"), "size": 1}
    for name, value in {**changes, "version": "x"}.items():
        other = dataclasses.replace(listing, files=(first._replace(**{name: value}), last))
        assert other.fingerprint() != listing.fingerprint(), name


def make_listing(number: int = 0) -> Listing:
    files = (
        ImageFile("cat/caf\udce9.jpg", "cat", None, 7, "1700000000000000001", "film", "md5:x"),
        ImageFile(f"dog/line\n{number}.jpg", "dog", "test", 7, '"etag"'),
    )
    skipped = {"новый.txt": "not inside a label folder"}
    fractions = {"eval": 0.1, "train": 0.9}
    listing = Listing("gs://bucket/images", files, skipped, "manifest", ("A note.",))
    return dataclasses.replace(listing, fractions=fractions)


@pytest.mark.parametrize("store", ["memory://changing", "zip"])
def test_other_content_in_a_store_is_another_fingerprint(tmp_path: Path, store: str) -> None:
    fingerprints = set()
    for content in (b"one", b"two"):
        with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
            for name in ("cat/1.jpg", "dog/1.jpg"):
                archive.writestr(zipfile.ZipInfo(name), content)
                fsspec.filesystem("memory").pipe(f"/changing/{name}", content)
        listing = list_images(f"zip://::{tmp_path}/p.zip" if store == "zip" else store)
        fingerprints.add(listing.fingerprint())
    assert len(fingerprints) == 2


@pytest.mark.parametrize("store", ["", "memory://store"])
def test_what_is_written_is_read(tmp_path: Path, store: str) -> None:
    folder = f"{store or tmp_path}/new/listings"
    path = write_listing(make_listing(), folder)
    assert path.startswith(f"{folder}/")
    assert read_listing(path) == make_listing()
    fs, place = fsspec.core.url_to_fs(path)
    before = fs.cat_file(place)
    assert write_listing(make_listing(), folder) == path
    assert fs.cat_file(place) == before
    assert write_listing(make_listing(1), folder) != path


def look_up_content(folder: Path) -> str:
    config = to_json(IngestConfig(fingerprint="content"))
    properties = {"input_base": str(folder), "config": config, "listings": f"{folder}/../listings"}
    resolved = look_up({}, properties)
    listed = read_listing(resolved["listing"])
    contents = [content for _, content in read_files(listed.root, listed.files, IngestConfig())]
    assert not any(isinstance(content, Unread) for content in contents)
    # A file that has changed since is not read, though its size and time are the same.
    wrong = [listed.files[0]._replace(checksum="md5:x")]
    [(_, content)] = read_files(listed.root, wrong, IngestConfig())
    assert isinstance(content, Unread)
    return str(resolved["input_fingerprint"])


def test_a_given_listing_is_not_made_again(image_folder: Path, tmp_path: Path) -> None:
    folder, listings = str(shutil.copytree(image_folder, tmp_path / "images")), str(tmp_path / "l")
    properties = {"input_base": folder, "config": to_json(IngestConfig()), "listings": listings}
    listed = look_up({}, properties)
    given = {**properties, "listing": write_listing(list_source(folder, IngestConfig()), listings)}
    shutil.rmtree(folder)
    assert look_up({}, given) == listed
    assert listed["listing"] == given["listing"]


def test_the_content_alone_counts_if_it_is_read(image_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(image_folder, tmp_path / "images"))
    before = look_up_content(folder)
    copy = Path(shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copyfile))
    assert look_up_content(copy) == before
    first, second = sorted(copy.rglob("*.*"))[:2]
    first.write_bytes(second.read_bytes())
    assert look_up_content(copy) != before


def test_the_ten_newest_are_kept(tmp_path: Path) -> None:
    """Beside all other files."""
    written = [*touch(tmp_path, "notes.txt", "mine.jsonl.gz").iterdir()]
    foreign = len(written)
    for number in range(12):
        written.append(Path(write_listing(make_listing(number), str(tmp_path))))
        os.utime(written[-1], (number, number))
        if number == 9:
            # What is used again counts as new.
            assert Path(write_listing(make_listing(0), str(tmp_path))) == written[foreign]
    assert {path.name for path in tmp_path.iterdir()} == {
        path.name for number, path in enumerate(written, -foreign) if number not in (1, 2)
    }


def test_an_incomplete_listing_is_named(tmp_path: Path) -> None:
    path = Path(write_listing(make_listing(), str(tmp_path)))
    path.write_bytes(path.read_bytes()[:-20])
    for wrong in (str(path), str(tmp_path / "none.jsonl.gz")):
        with pytest.raises(StorageError, match=f"Cannot read the listing {wrong} .*: run again"):
            read_listing(wrong)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match=r"Cannot write .*file"):
        write_listing(make_listing(), str(tmp_path / "file"))

import dataclasses
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import fsspec
import pytest

from benchmarks.gcs_server import Fault, GcsServer, objects
from components.contract.errors import UserError
from components.ingest.config import IngestConfig
from components.ingest.lookup import list_images, list_source
from components.ingest.source.listing import ImageFile
from components.ingest.source.spans import find_spans
from components.storage import retry
from components.storage.fetch import Content, Unread, read_files
from components.storage.folder_listing import find_files
from components.storage.transfer import copy_folder, remove_folder
from tests.ingest.plain import HEADER, ingest
from tests.pictures import write_folder
from tests.storage.gs_client import point_to

CONFIG = IngestConfig()


@pytest.fixture
def server() -> Iterator[GcsServer]:
    """A Cloud Storage server that every gs:// of the test goes to."""
    with GcsServer() as server, point_to(server):
        yield server


def content(folder: str, files: Sequence[ImageFile]) -> list[Content]:
    return [data for _, data in read_files(folder, files, CONFIG)]


HOSTILE = [
    *("cat/a b.jpg", "cat/новый.jpg", "cat/100%2e.jpg", "cat/line\nbreak.jpg", "cat/#1?.jpg"),
    *("cat/{0}.jpg", "cat/-rf", "cat/" + "x" * 255, "cat/x/../y.jpg", "Cat/a b.jpg"),
    "dog//double.jpg",
]


def test_odd_object_names_can_be_read(server: GcsServer) -> None:
    for name in HOSTILE:
        server.put("bucket", f"images/{name}", name.encode())
    server.put("bucket", "images/dog/", b"")
    listing = list_images("gs://bucket/images")
    # A hidden part, as "..", and the marker of an empty folder are no images.
    reasons = listing.skipped
    assert reasons == {"cat/x/../y.jpg": "hidden"} | {
        path: "not a regular file" for path in reasons if path.rstrip("/") == "dog"
    }
    taken = sorted(name for name in HOSTILE if ".." not in name)
    assert [file.path for file in listing.files] == taken
    assert content(listing.root, listing.files) == [name.encode() for name in taken]


def test_objects_that_stand_for_folders_are_removed_and_not_copied(
    server: GcsServer, tmp_path: Path
) -> None:
    """TensorFlow writes them beside its checkpoints."""
    for name in ("run/", "run/phase/", "run/phase/1", "run.txt"):
        server.put("bucket", name, name.encode())
    files = [file.path for file in find_files("gs://bucket/run") if not file.problem]
    assert files == ["phase/1"], "what Pusher copies"
    copy_folder("gs://bucket/run", str(tmp_path / "run"))
    assert [path.name for path in (tmp_path / "run").rglob("*")] == ["phase", "1"]
    remove_folder("gs://bucket/run")
    assert [file.path for file in find_files("gs://bucket")] == ["run.txt"]


def test_folders_of_a_bucket_are_listed_page_by_page_at_the_same_time(server: GcsServer) -> None:
    for number in range(2500):
        server.put("bucket", f"images/{'ab'[number % 2]}/{number}.jpg", b"x")
    listing = list_images("gs://bucket/images")
    assert len(listing.files) == 2500
    # The first page shows that there are more; then the folders, and two pages of each.
    assert server.counts["list"] == 1 + 1 + 2 * 2
    assert server.counts["metadata"] == 0
    assert content(listing.root, listing.files[:200]) == [b"x"] * 200
    assert server.counts["media"] == 200
    assert server.counts["metadata"] == 0


LISTED = [
    "loose.jpg",
    *(f"train/cat/{number}.jpg" for number in range(9)),
    *("train/dog/deep/1.jpg", "train/3.jpg", "test/cat/1.jpg", "train2/x.jpg"),
    *(f"label {number}/1.jpg" for number in range(4)),
]


@pytest.mark.parametrize("page", [4, 1000], ids=["many pages", "one page"])
@pytest.mark.parametrize("folder", ["", "train/"])
def test_all_objects_are_listed_once(
    server: GcsServer, monkeypatch: pytest.MonkeyPatch, page: int, folder: str
) -> None:
    monkeypatch.setattr(objects, "PAGE", page)
    for name in LISTED:
        server.put("data", name, b"an image")
    entries = find_files(f"gs://data/{folder}".rstrip("/"))
    assert [folder + entry.path for entry in entries] == sorted(
        name for name in LISTED if name.startswith(folder)
    )
    facts = {(entry.size, entry.problem, entry.checksum[:7]) for entry in entries}
    assert facts == {(8, "", "crc32c:")}


# What the server does first, and the reason to give up, if any.
FAULTS: dict[str, tuple[list[Fault], str]] = {
    "unavailable": ([503, 500], ""),
    "reset": (["reset", "reset", "reset"], ""),
    "wrong, then short": (["corrupt", "short"], ""),
    "forbidden": ([403] * 100, "Forbidden"),
    "damaged in the store": (["corrupt"] * 100, "arrives damaged"),
}


@pytest.mark.parametrize(("faults", "reason"), FAULTS.values(), ids=FAULTS.keys())
def test_tries_again_or_gives_up_with_the_reason(
    server: GcsServer, faults: list[Fault], reason: str
) -> None:
    for name in ("a/1.jpg", "b/1.jpg"):
        server.put("bucket", name, name.encode() * 100)
    listing = list_images("gs://bucket")
    server.faults["a/1.jpg"] = list(faults)
    first, other = content(listing.root, listing.files)
    assert other == b"b/1.jpg" * 100
    if reason:
        assert isinstance(first, Unread)
        assert not first.too_large
        assert reason in str(first)
    else:
        assert first == b"a/1.jpg" * 100
        assert server.faults["a/1.jpg"] == []


def test_objects_are_read_as_they_were_listed(server: GcsServer) -> None:
    for name in ("changed", "gone", "late"):
        server.put("bucket", f"a/{name}.jpg", b"as listed")
    server.put("bucket", "a/too large.jpg", bytes(2**20))
    listing = list_images("gs://bucket")
    server.put("bucket", "a/changed.jpg", b"otherwise")
    assert list_images("gs://bucket").fingerprint() != listing.fingerprint()
    server.add_bucket("bucket").delete("a/gone.jpg")
    # The store says so of this one too, and still describes it.
    server.faults["a/late.jpg"] = [404, 404]
    config = dataclasses.replace(CONFIG, max_image_mib=0.5)
    contents = [content for _, content in read_files(listing.root, listing.files, config)]
    changed, gone = (Unread(f"it has {what} since it was listed") for what in ("changed", "gone"))
    large = Unread("1.0 MiB exceeds max_image_mib (0.5)", too_large=True)
    assert contents == [changed, gone, b"as listed", large]


def test_a_bucket_gives_the_same_shards_as_a_folder(server: GcsServer, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "images", each=20)
    for path in folder.glob("*/*"):
        server.put("bucket", f"images/{path.relative_to(folder)}", path.read_bytes())
    server.fault_every = {9: "corrupt", 31: "short"}
    remote, local = ingest("gs://bucket/images", tmp_path / "a"), ingest(folder, tmp_path / "b")
    for split in ("train", "eval"):
        assert remote.shards(split) == local.shards(split)
    assert remote.summary == local.summary


def test_spans_and_manifests_of_a_bucket(server: GcsServer, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "images", each=8)
    rows = ["path,label"]
    for path in sorted(folder.glob("*/*")):
        rows.append(f"{path.name}-{path.parent.name},{path.parent.name}")
        name = f"days/2025/03/04/v2/{path.name}-{path.parent.name}"
        server.put("bucket", name, path.read_bytes())
    server.put("bucket", "days/2025/03/04/v1/old.jpg", b"x")
    server.put("bucket", "days/2025/03/03/v9/older.jpg", b"x")
    server.put("bucket", "manifest.csv", "\n".join(rows).encode())
    pattern = "gs://bucket/days/{YYYY}/{MM}/{DD}/v{VERSION}"
    assert find_spans(pattern)[-1].folder == "gs://bucket/days/2025/03/04/v2"
    server.put("bucket", "days/2025/03/02/v1/cat/1.jpg", b"x")
    server.put("bucket", "days/2025/03/01/v1/dog/1.jpg", b"x")
    listing = list_source(pattern, dataclasses.replace(HEADER, window=2, span=20149))
    assert [file.path for file in listing.files] == [
        "2025/03/01/v1/dog/1.jpg",
        "2025/03/02/v1/cat/1.jpg",
    ]
    config = dataclasses.replace(HEADER, manifest="gs://bucket/manifest.csv")
    assert sum(ingest(pattern, tmp_path / "out", config).counts.values()) == 24


def test_an_empty_location_is_a_user_error(server: GcsServer) -> None:
    server.put("bucket", "a/1.jpg", b"x")
    for folder in ("gs://nobucket/images", "gs://bucket/nothing", "nosuch://bucket"):
        with pytest.raises(UserError, match=folder):
            list_images(folder)


def one_file(folder: Path) -> tuple[Path, Sequence[ImageFile]]:
    write_folder(folder, each=1, labels=("blue",))
    files = list_images(str(folder)).files
    return folder / files[0].path, files


CHANGES: dict[str, Callable[[Path], object]] = {
    "longer": lambda path: path.write_bytes(bytes(10_000)),
    "other bytes": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "gone": Path.exists,
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "unreadable": lambda path: path.symlink_to(path),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_file_that_changes_after_the_listing_is_rejected(tmp_path: Path, name: str) -> None:
    path, files = one_file(tmp_path)
    if name not in ("longer", "other bytes"):
        path.unlink()
    CHANGES[name](path)
    [rejected] = content(str(tmp_path), files)
    assert isinstance(rejected, Unread)
    assert not rejected.too_large


def test_a_file_that_changes_while_it_is_read_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, files = one_file(tmp_path)
    for first in (1, 10_000):
        [(_, data)] = read_files(str(tmp_path), files, CONFIG, first=first)
        assert data == path.read_bytes()[:first]
    read = os.read

    def slow_read(descriptor: int, size: int) -> bytes:
        data = read(descriptor, size)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            path.write_bytes(bytes(path.stat().st_size))
        return data

    monkeypatch.setattr(os, "read", slow_read)
    [rejected] = content(str(tmp_path), files)
    assert "changed since it was listed" in str(rejected)


def test_a_revoked_token_is_renewed_once(
    server: GcsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.write_key(tmp_path / "key.json")
    options = {"endpoint_url": server.endpoint, "token": str(tmp_path / "key.json")}
    monkeypatch.setitem(fsspec.config.conf, "gs", options)
    for number in range(100):
        server.put("bucket", f"a/{number}.jpg", b"x")
    listing = list_images("gs://bucket")
    assert server.counts["token"] == 1
    server.faults["a/7.jpg"] = [401]
    assert content(listing.root, listing.files) == [b"x"] * 100
    assert server.counts["token"] == 2
    assert retry.count_retries() == {"an expired token (401)": 1}

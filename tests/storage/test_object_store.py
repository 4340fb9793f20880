from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from components.ingest.config import IngestConfig
from components.ingest.listing import list_source
from components.ingest.listing_file import read_listing, write_listing
from components.storage import retry
from components.storage.fetch import Unread, read_files
from components.storage.object_store import KUBEFLOW_ENDPOINT, find_endpoint, open_store
from components.storage.retry import Patience
from tests.storage.s3_server import empty, serve_s3

CONFIG = IngestConfig()
IMAGES = {
    f"{label}/{number}.jpg": f"{label} {number}".encode() for label in "ab" for number in "12"
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serve_s3("bucket") as endpoint:
        yield endpoint


@pytest.fixture
def store(server: str) -> Iterator[Any]:
    """fsspec's file system, with images in day 2024-01-02 of `bucket`."""
    fs, _ = open_store("minio://bucket")
    for name, data in IMAGES.items():
        fs.pipe_file(f"bucket/2024-01-02/{name}", data)
    yield fs
    empty(server, "bucket")


@pytest.mark.parametrize("scheme", ["s3", "minio"])
def test_images_are_listed_and_read(store: Any, scheme: str) -> None:
    data = f"{scheme}://bucket/{{YYYY}}-{{MM}}-{{DD}}"
    listing = list_source(data, CONFIG)
    assert listing.root == f"{scheme}://bucket/2024-01-02"
    found = {file.path: data for file, data in read_files(listing.root, listing.files, CONFIG)}
    assert found == IMAGES
    heads = read_files(listing.root, listing.files, CONFIG, first=1)
    assert [data for _, data in heads] == [b"a", b"a", b"b", b"b"]


def test_objects_that_changed_or_went_since_they_were_listed_are_not_read(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "PATIENCE", Patience(first_pause=0.01))
    listing = list_source("s3://bucket/2024-01-02", CONFIG)
    store.pipe_file("bucket/2024-01-02/a/1.jpg", b"x" * len(IMAGES["a/1.jpg"]))
    store.rm_file("bucket/2024-01-02/a/2.jpg")
    store.pipe_file("bucket/2024-01-02/a/3.jpg", b"new")
    found = {file.path: data for file, data in read_files(listing.root, listing.files, CONFIG)}
    assert found == {
        **IMAGES,
        "a/1.jpg": Unread("it has changed since it was listed"),
        "a/2.jpg": Unread("it has gone since it was listed"),
    }
    assert list_source("s3://bucket/2024-01-02", CONFIG).fingerprint() != listing.fingerprint()


def test_a_listing_is_kept_in_the_store(store: Any) -> None:
    listing = list_source("s3://bucket/2024-01-02", CONFIG)
    for _ in range(2):
        path = write_listing(listing, "minio://bucket/listings")
    assert path.startswith("minio://bucket/listings/")
    assert read_listing(path) == listing
    assert len(store.ls("bucket/listings")) == 1


def test_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "")
    assert (find_endpoint("minio://b"), find_endpoint("s3://b")) == (KUBEFLOW_ENDPOINT, None)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://one")
    assert find_endpoint("minio://b") == find_endpoint("s3://b") == "http://one"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://two")
    assert find_endpoint("minio://b") == find_endpoint("s3://b") == "http://two"

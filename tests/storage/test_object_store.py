import multiprocessing
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fsspec.asyn import sync

from components.contract.errors import StorageError
from components.ingest.config import IngestConfig
from components.ingest.lookup import list_source
from components.ingest.source.listing import read_listing, write_listing
from components.storage import object_store, retry
from components.storage.fetch import Unread, read_files
from components.storage.object_store import find_endpoint, open_store
from tests.storage.s3_server import empty, serve_s3

CONFIG = IngestConfig()
IMAGES = {
    f"{label}/{number}.jpg": f"{label} {number}".encode() for label in "ab" for number in "12"
}
ODD = "c d/[x]*?#1+ü=&100%2e~.jpg"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serve_s3("bucket") as endpoint:
        yield endpoint


@pytest.fixture
def store(server: str) -> Iterator[Any]:
    """Fsspec's file system, with images in day 2024-01-02 of `bucket`."""
    fs, _ = open_store("minio://bucket")
    for name, data in IMAGES.items():
        fs.pipe_file(f"bucket/2024-01-02/{name}", data)
    yield fs
    empty(server, "bucket")


def _check_reading() -> None:
    listing = list_source("s3://bucket/2024-01-02", CONFIG)
    read = {file.path: data for file, data in read_files(listing.root, listing.files, CONFIG)}
    assert read == IMAGES


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["s3", "minio"])
def test_images_are_listed_and_read(store: Any, scheme: str) -> None:
    data = f"{scheme}://bucket/{{YYYY}}-{{MM}}-{{DD}}"
    store.pipe_file(f"bucket/2024-01-02/{ODD}", b"odd")
    listing = list_source(data, CONFIG)
    assert listing.root == f"{scheme}://bucket/2024-01-02"
    read = {file.path: data for file, data in read_files(listing.root, listing.files, CONFIG)}
    assert read == {**IMAGES, ODD: b"odd"}
    heads = read_files(listing.root, listing.files, CONFIG, first=1)
    assert [data for _, data in heads] == [b"a", b"a", b"b", b"b", b"o"]


@pytest.mark.slow
def test_objects_that_changed_or_went_since_they_were_listed_are_not_read(store: Any) -> None:
    listing = list_source("s3://bucket/2024-01-02", CONFIG)
    store.pipe_file("bucket/2024-01-02/a/1.jpg", b"x" * len(IMAGES["a/1.jpg"]))
    store.rm_file("bucket/2024-01-02/a/2.jpg")
    store.pipe_file("bucket/2024-01-02/a/3.jpg", b"new")
    read = {file.path: data for file, data in read_files(listing.root, listing.files, CONFIG)}
    assert read == {
        **IMAGES,
        "a/1.jpg": Unread("it has changed since it was listed"),
        "a/2.jpg": Unread("it has gone since it was listed"),
    }
    assert list_source("s3://bucket/2024-01-02", CONFIG).fingerprint() != listing.fingerprint()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("faults", "retries"),
    [(["503 Slow Down", "429 Too Many"], 2), (["400 Wrong Region"], 0), (["301", "500 Oh"], 1)],
)
def test_a_refused_read_is_repeated(
    store: Any, monkeypatch: pytest.MonkeyPatch, faults: list[str], retries: int
) -> None:
    """By s3fs, which follows redirections, unless the store is overloaded."""
    monkeypatch.setattr("tests.storage.s3_server.FAULTS", [*faults])
    before = sum(retry.count_retries().values())
    _check_reading()
    assert sum(retry.count_retries().values()) == before + retries


@pytest.mark.slow
@pytest.mark.parametrize("key", ["a//b", "/a", "a/./b", "a/"])
def test_an_object_is_never_taken_for_another(store: Any, key: str) -> None:
    """Obstore refuses some names, and reads `a` for `/a` and `a/`."""
    for name in ("a", key):
        store.call_s3("put_object", Bucket="bucket", Key=name, Body=name.encode())
    version = store.call_s3("head_object", Bucket="bucket", Key=key)["ETag"]
    for _ in range(2):
        data = sync(store.loop, store.read_version, f"bucket/{key}", version)
        assert data == key.encode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value"), [("AWS_ENDPOINT_URL_S3", ""), ("AWS_CHECKSUM_ALGORITHM", "crc32c")]
)
def test_s3fs_reads_what_obstore_refuses(
    store: Any, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """Obstore takes options from the environment, and panics at some of them."""
    monkeypatch.setenv(name, value)
    type(store).clear_instance_cache()
    _check_reading()


@pytest.mark.slow
def test_a_forked_process_reads(store: Any) -> None:
    """It lacks obstore's threads, and would wait for them forever."""
    _check_reading()
    child = multiprocessing.get_context("fork").Process(target=_check_reading, daemon=True)
    child.start()
    child.join(20)
    assert child.exitcode == 0


@pytest.mark.slow
def test_a_proxy_that_s3fs_does_not_ask_is_no_overload(
    store: Any, monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    """Obstore knows no ports in `no_proxy`."""
    monkeypatch.setenv("no_proxy", server.removeprefix("http://"))
    with serve_s3("bucket") as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.setattr("tests.storage.s3_server.FAULTS", ["503 No"] * len(IMAGES))
        type(store).clear_instance_cache()
        before = retry.count_retries()
        _check_reading()
    assert retry.count_retries() == before


@pytest.mark.slow
def test_a_listing_is_kept_in_the_store(store: Any) -> None:
    listing = list_source("s3://bucket/2024-01-02", CONFIG)
    for _ in range(2):
        path = write_listing(listing, "minio://bucket/listings")
    assert path.startswith("minio://bucket/listings/")
    assert read_listing(path) == listing
    assert len(store.ls("bucket/listings")) == 1


def test_the_endpoint(monkeypatch: pytest.MonkeyPatch, resolving: set[str]) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "")
    resolving.add("minio-service.kubeflow")  # Before 2.16.
    endpoints = (find_endpoint("minio://b"), find_endpoint("s3://b"))
    assert endpoints == ("http://minio-service.kubeflow:9000", None)
    for name, url in (("AWS_ENDPOINT_URL", "http://one"), ("AWS_ENDPOINT_URL_S3", "http://two")):
        monkeypatch.setenv(name, url)
        assert find_endpoint("minio://b") == find_endpoint("s3://b") == url


@pytest.fixture
def resolving(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[set[str]]:
    """Names that the cluster's DNS knows; the pod is in the namespace team-a, without endpoint."""
    names: set[str] = set()

    def look_up(host: str, *_: Any, **__: Any) -> list[Any]:
        if host not in names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [host]

    (tmp_path / "namespace").write_text("team-a")
    monkeypatch.setattr(object_store, "_POD_NAMESPACE", tmp_path / "namespace")
    monkeypatch.setattr("components.storage.object_store.socket.getaddrinfo", look_up)
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    object_store.find_kubeflow_store.cache_clear()
    yield names
    object_store.find_kubeflow_store.cache_clear()


def test_the_cluster_store_is_the_first_name_that_resolves(resolving: set[str]) -> None:
    tried = "seaweedfs.team-a, minio-service.team-a, seaweedfs.kubeflow, minio-service.kubeflow"
    sentence = f"none of {tried} resolves.* Set AWS_ENDPOINT_URL"
    with pytest.raises(StorageError, match=sentence):
        list_source("minio://bucket/images", CONFIG)
    # The last one first; KFP may be in a namespace of another name.
    for name in reversed(tried.split(", ")):
        resolving.add(name)
        object_store.find_kubeflow_store.cache_clear()
        assert find_endpoint("minio://b/x") == f"http://{name}:9000"

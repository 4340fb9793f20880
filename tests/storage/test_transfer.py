import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from botocore import exceptions  # type: ignore[import-untyped]
from s3fs import S3FileSystem

from components.contract.errors import StorageError, UserError
from components.evaluation.baseline_lookup import find_baseline
from components.storage import retry
from components.storage.folder import is_file, list_folders, read_bytes, replace_file
from components.storage.folder_listing import find_files
from components.storage.retry import RetryPolicy
from components.storage.transfer import copy_file, copy_folder, remove_file, remove_folder
from tests.storage.s3_server import (
    ACCESS_KEY,
    SECRET_KEY,
    empty,
    forget_clients,
    serve_s3,
    set_up_client,
)

# Hundreds of requests to a real S3 server.
pytestmark = pytest.mark.slow

STORE = "minio://bucket/run"
NAMES = ["a b.txt", "c+d&e=f.txt", "новый.txt", "100%2e.txt", "[x]*?.txt", "#1.txt", "x"]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """An S3 server with two buckets."""
    with serve_s3("bucket", "other") as endpoint:
        yield endpoint


@pytest.fixture
def endpoint(server: str) -> Iterator[str]:
    """The same for one test, which starts and ends with empty buckets."""
    yield server
    empty(server, "bucket", "other")


def write(url: str) -> None:
    replace_file(url, url.encode())


def refuse(status: int, code: str) -> OSError:
    """An error as s3fs makes it of what a store answers."""
    error = OSError(code)
    answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error.__cause__ = exceptions.ClientError(answer, "GetObject")
    return error


BROKEN = (
    exceptions.ResponseStreamingError(error="closed"),
    exceptions.ReadTimeoutError(endpoint_url="", error=""),
    aiohttp.ClientPayloadError(),
    refuse(503, "InternalError"),
    refuse(400, "SlowDown"),
)


def test_a_broken_read_is_retried(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_file(f"{STORE}/file", b"whole")
    whole, asked = S3FileSystem._call_s3, []

    async def broken(self: Any, method: str, *details: Any, **options: Any) -> Any:
        asked.append(method)
        if len(asked) <= len(BROKEN):
            raise BROKEN[len(asked) - 1]
        return await whole(self, method, *details, **options)

    monkeypatch.setattr(S3FileSystem, "_call_s3", broken)
    assert read_bytes(f"{STORE}/file") == b"whole"
    assert asked == ["get_object"] * (len(BROKEN) + 1)


@pytest.mark.parametrize("scheme", ["s3", "minio"])
def test_files_go_to_the_store_and_back(endpoint: str, tmp_path: Path, scheme: str) -> None:
    store = f"{scheme}://other/x"
    (tmp_path / "from" / "below").mkdir(parents=True)
    for name in NAMES:
        (tmp_path / "from" / "below" / name).write_text(name)
    (tmp_path / "from" / "broken").symlink_to("nowhere")
    copy_folder(str(tmp_path / "from"), f"{store}/copy")
    copy_folder(f"{store}/copy", f"{store}/again")
    # As a pattern, a name would be that of others.
    remove_file(f"{store}/copy/below/[x]*?.txt")
    remove_file(f"{store}/copy/below/none")
    copy_file(f"{store}/again/below/a b.txt", f"{store}/again/below/#1.txt")
    for place, names in (("copy", {*NAMES} - {"[x]*?.txt"}), ("again", {*NAMES})):
        copy_folder(f"{store}/{place}", str(tmp_path / place))
        copied = {file.name: file.read_text() for file in (tmp_path / place / "below").iterdir()}
        expected = {name: name for name in names}
        assert copied == expected | ({"#1.txt": "a b.txt"} if place == "again" else {})
    remove_folder(f"{store}/copy")
    assert list_folders(store) == ["again"]
    remove_folder(f"{store}/none")


def test_folders_on_disk(tmp_path: Path) -> None:
    write(str(tmp_path / "x/below/1"))
    copy_folder(str(tmp_path / "x"), str(tmp_path / "y"))
    remove_folder(str(tmp_path / "x"))
    remove_folder(str(tmp_path / "x"))
    assert [file.path for file in find_files(str(tmp_path))] == ["y/below/1"]
    remove_file(str(tmp_path / "y/below/1"))
    remove_file(str(tmp_path / "y/below/1"))
    with pytest.raises(StorageError, match="Cannot remove"):
        remove_file(str(tmp_path / "y"))


ASKING: dict[str, Callable[[str], Any]] = {
    "is_file": is_file,
    "list_folders": list_folders,
    "read": read_bytes,
    "write": write,
    "remove": remove_file,
    "find_baseline": lambda url: find_baseline(url, "/candidate"),
    "find_files": find_files,
}


@pytest.fixture(scope="module")
def dead_port() -> Iterator[int]:
    """A port that nothing listens at."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])


@pytest.fixture
def nowhere(server: str, dead_port: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """An endpoint that nothing listens at, which clients try once."""
    endpoint = f"http://127.0.0.1:{dead_port}"
    set_up_client(monkeypatch, endpoint)
    monkeypatch.setattr(retry, "RETRY_POLICY", RetryPolicy(first_deadline=0, deadline=0))
    return endpoint


def said(operation: Callable[[str], Any]) -> str:
    with pytest.raises(UserError) as caught:
        operation("minio://bucket/run")
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    assert not any(secret in message for secret in (ACCESS_KEY, SECRET_KEY, "password"))
    return message


@pytest.mark.parametrize("operation", ASKING.values(), ids=ASKING.keys())
def test_a_dead_endpoint_gives_one_sentence(nowhere: str, operation: Callable[[str], Any]) -> None:
    message = said(operation)
    assert f"Cannot reach the object store at {nowhere} (EndpointConnectionError)" in message
    assert "set AWS_ENDPOINT_URL" in message


@pytest.mark.parametrize("endpoint", ["http://me:password@127.0.0.1:1", "127.0.0.1:9000", "minio"])
def test_a_wrong_endpoint_gives_one_sentence(
    server: str, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setattr(retry, "RETRY_POLICY", RetryPolicy(first_deadline=0, deadline=0))
    assert "set AWS_ENDPOINT_URL" in said(is_file)
    assert "set AWS_ENDPOINT_URL" in said(find_files)


@pytest.mark.parametrize("missing", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_missing_credentials_give_one_sentence(
    server: str, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.delenv(missing)
    forget_clients()
    for operation in (is_file, write, find_files):
        assert said(operation) == (
            f"There are no credentials for the object store at {server}: "
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    forget_clients()


@pytest.mark.parametrize("operation", [write, find_files])
def test_a_missing_bucket_is_named(endpoint: str, operation: Callable[[str], Any]) -> None:
    message = said(lambda _: operation("minio://no-such-bucket/run"))
    assert message.startswith(
        f"There is no bucket no-such-bucket in the object store at {endpoint}"
    )


def test_refused_access_gives_one_sentence(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError("Access Denied.")

    monkeypatch.setattr(S3FileSystem, "_call_s3", refuse)
    message = said(lambda url: read_bytes(f"{url}/x"))
    assert message == (
        f"Access to minio://bucket/run/x in the object store at {endpoint} was refused "
        "(Access Denied): check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
    )

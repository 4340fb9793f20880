import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import aiohttp
import boto3  # type: ignore[import-untyped]
import pytest
from botocore import exceptions  # type: ignore[import-untyped]
from s3fs import S3FileSystem
from tfx.dsl.io import fileio
from tfx.types import standard_artifacts
from tfx.utils import io_utils

from components.contract.errors import UserError
from components.contract.properties import FOUND_PROPERTY, VERSION_PROPERTY
from components.evaluation.baseline import BaselineFinder
from components.evaluation.baseline_lookup import FOUND_KEY, find_baseline
from components.storage import retry
from components.storage.folder_listing import find_files
from components.storage.retry import RetryPolicy
from components.storage.tfx_filesystem import register_object_stores
from tests.evaluation.saved_model_sample import saved_model
from tests.storage.s3_server import (
    ACCESS_KEY,
    SECRET_KEY,
    empty,
    forget_clients,
    serve_s3,
    set_up_client,
)

# Hundreds of requests to a real S3 server, through TFX.
pytestmark = pytest.mark.slow

STORE = "minio://bucket/run"
NAMES = ["a b.txt", "c+d&e=f.txt", "новый.txt", "100%2e.txt", "[x]*?.txt", "#1.txt"]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """An S3 server with two buckets, which TFX can use."""
    register_object_stores()
    register_object_stores()
    with serve_s3("bucket", "other") as endpoint:
        yield endpoint


@pytest.fixture
def endpoint(server: str) -> Iterator[str]:
    """The same for one test, which starts and ends with empty buckets."""
    yield server
    empty(server, "bucket", "other")


@pytest.fixture(scope="module")
def client(server: str) -> Iterator[Any]:
    """A second client, which shares nothing with fsspec."""
    client = boto3.client("s3", endpoint_url=server, region_name="us-east-1")
    yield client
    client.close()


def write(url: str, text: str = "") -> str:
    with fileio.open(url, "w") as file:
        file.write(text or url)
    return url


def read(url: str) -> str:
    with fileio.open(url) as file:
        return str(file.read())


@pytest.fixture
def tree(endpoint: str) -> str:
    """`STORE`/tree with x, y/1, y/2 and z/deep/3."""
    for name in ("x", "y/1", "y/2", "z/deep/3"):
        write(f"{STORE}/tree/{name}", name)
    return f"{STORE}/tree"


@pytest.mark.parametrize("scheme", ["s3", "minio"])
def test_what_is_written_is_read(endpoint: str, scheme: str) -> None:
    url = f"{scheme}://bucket/new/folder/file"
    for data in (b"", bytes(range(256)), os.urandom(2**20)):
        with fileio.open(url, "wb") as file:
            file.write(data)
        with fileio.open(url, "rb") as file:
            assert file.read() == data
        assert fileio.stat(url).length == len(data)
    write(url, "ä\r\nb\n")
    assert list(fileio.open(url)) == ["ä\r\n", "b\n"]
    assert read(url.replace(scheme, "s3")) == read(url.replace(scheme, "minio"))


def refuse(status: int, code: str) -> OSError:
    """An error as s3fs makes it of what a store answers."""
    error = OSError(code)
    answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error.__cause__ = exceptions.ClientError(answer, "GetObject")
    return error


def test_a_broken_read_is_retried(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(f"{STORE}/file", "whole")
    whole = S3FileSystem._call_s3
    faults = [
        exceptions.ResponseStreamingError(error="closed"),
        exceptions.ReadTimeoutError(endpoint_url="", error=""),
        aiohttp.ClientPayloadError(),
        *(refuse(503, "InternalError"), refuse(400, "SlowDown")),
    ]

    async def broken(self: Any, method: str, *details: Any, **options: Any) -> Any:
        assert method == "get_object"
        if faults:
            raise faults.pop()
        return await whole(self, method, *details, **options)

    monkeypatch.setattr(S3FileSystem, "_call_s3", broken)
    monkeypatch.setattr(retry, "RETRY_POLICY", RetryPolicy(first_pause=0.01))
    assert read(f"{STORE}/file") == "whole"
    assert not faults


def test_a_failed_write_leaves_no_object(endpoint: str) -> None:
    def fail(mode: str) -> None:
        with fileio.open(f"{STORE}/half", mode) as file:
            file.write("half" if mode == "w" else b"half")
            raise RuntimeError

    for mode in ("w", "wb"):
        with pytest.raises(RuntimeError):
            fail(mode)
    assert not fileio.exists(f"{STORE}/half")
    with pytest.raises(ValueError, match="no mode 'a'"):
        fileio.open(f"{STORE}/half", "a")


def test_folders_exist_while_they_have_objects(tree: str, client: Any) -> None:
    client.put_object(Bucket="bucket", Key="run/marked/")
    fileio.makedirs(f"{STORE}/made")
    names = ("tree", "tree/", "tree/y", "tree/x", "made", "marked")
    assert [fileio.isdir(f"{STORE}/{name}") for name in names] == [True] * 3 + [False] * 2 + [True]
    assert fileio.exists(f"{tree}/y")
    assert not fileio.exists(f"{STORE}/tre")
    assert fileio.listdir(f"{STORE}/marked") == []
    assert sorted(fileio.listdir(tree)) == ["x", "y", "z"]
    fileio.rmtree(f"{STORE}/marked")
    assert not fileio.exists(f"{STORE}/marked")
    assert not fileio.isdir("minio://no-such-bucket/run")
    assert not fileio.exists("minio://no-such-bucket/run")


def test_walk(tree: str) -> None:
    expected = [(tree, ["y", "z"], ["x"]), (f"{tree}/y", [], ["1", "2"])]
    expected += [(f"{tree}/z", ["deep"], []), (f"{tree}/z/deep", [], ["3"])]
    assert list(fileio.walk(f"{tree}/")) == expected
    assert sorted(fileio.walk(tree, topdown=False)) == expected
    errors: list[OSError] = []
    assert list(fileio.walk(f"{tree}/none", onerror=errors.append)) == []
    assert len(errors) == 1


def test_copy_and_rename_and_remove(tree: str) -> None:
    fileio.copy(f"{tree}/x", f"{STORE}/copy")
    with pytest.raises(OSError, match="already exists"):
        fileio.copy(f"{tree}/y/1", f"{STORE}/copy")
    fileio.copy(f"{tree}/y/1", "s3://other/copy", overwrite=True)
    assert (read(f"{STORE}/copy"), read("minio://other/copy")) == ("x", "y/1")
    fileio.rename(f"{STORE}/copy", f"{STORE}/moved")
    assert not fileio.exists(f"{STORE}/copy")
    fileio.rename(tree, f"{STORE}/moved tree")
    assert not fileio.exists(tree)
    assert read(f"{STORE}/moved tree/z/deep/3") == "z/deep/3"
    fileio.remove(f"{STORE}/moved tree/y/1")
    # As a pattern, this would be the object that is left.
    fileio.rename(f"{STORE}/moved tree/x", f"{STORE}/moved tree/y/[2]")
    fileio.remove(f"{STORE}/moved tree/y/[2]")
    assert fileio.listdir(f"{STORE}/moved tree/y") == ["2"]
    fileio.rmtree(f"{STORE}/moved tree")
    assert fileio.listdir(STORE) == ["moved"]


MISSING: dict[str, Callable[[str], Any]] = {
    "open": fileio.open,
    "listdir": fileio.listdir,
    "remove": fileio.remove,
    "rmtree": fileio.rmtree,
    "stat": fileio.stat,
    "copy": lambda url: fileio.copy(url, f"{STORE}/y"),
    "rename": lambda url: fileio.rename(url, f"{STORE}/y"),
}


def test_missing_objects(endpoint: str) -> None:
    for name, operation in MISSING.items():
        with pytest.raises(fileio.NotFoundError, match="minio://bucket/run/none does not exist"):
            pytest.fail(f"{name} gave {operation(f'{STORE}/none')}")


def test_odd_names_go_to_the_store_and_back(endpoint: str, tmp_path: Path) -> None:
    (below := tmp_path / "from" / "below").mkdir(parents=True)
    for name in NAMES:
        (below / name).write_text(name)
    write(f"{STORE}/copy/old")
    io_utils.copy_dir(str(tmp_path / "from"), f"{STORE}/copy")
    io_utils.copy_dir(f"{STORE}/copy", f"{STORE}/again")
    io_utils.copy_dir(f"{STORE}/again", str(tmp_path / "to"))
    copied = {file.name: file.read_text() for file in (tmp_path / "to" / "below").iterdir()}
    assert copied == {name: name for name in NAMES}
    assert fileio.listdir(f"{STORE}/copy") == ["below"]
    io_utils.copy_file(f"{STORE}/copy/below/a b.txt", f"{STORE}/copy/below/#1.txt", overwrite=True)
    assert read(f"{STORE}/copy/below/#1.txt") == "a b.txt"
    fileio.rmtree(f"{STORE}/copy")
    assert not fileio.exists(f"{STORE}/copy")
    assert io_utils.read_string_file(f"{STORE}/again/below/#1.txt") == "#1.txt"


def test_the_executor_copies_the_baseline(endpoint: str, tmp_path: Path) -> None:
    model = saved_model(tmp_path / "model", weights=b"old")
    io_utils.copy_dir(str(model), f"{STORE}/pushed/7")
    baseline = standard_artifacts.Model()
    baseline.uri = "minio://bucket/artifacts/baseline"
    found = {FOUND_KEY: f"{STORE}/pushed/7", "pushed_models": f"{STORE}/pushed"}
    executor = BaselineFinder.EXECUTOR_SPEC.executor_class()
    candidate = {"model": [standard_artifacts.Model()]}
    executor.Do(candidate, {"baseline": [baseline]}, found)
    assert baseline.get_int_custom_property(FOUND_PROPERTY) == 1
    assert baseline.get_string_custom_property(VERSION_PROPERTY) == "7"
    index = f"{baseline.uri}/Format-Serving/variables/variables.index"
    assert io_utils.read_bytes_file(index) == b"old"

    # Without a baseline the artifact says so: one without any file cannot be opened.
    baseline.uri = "minio://bucket/artifacts/nothing"
    executor.Do(candidate, {"baseline": [baseline]}, {**found, FOUND_KEY: ""})
    assert baseline.get_int_custom_property(FOUND_PROPERTY) == 0
    [note] = fileio.listdir(baseline.uri)
    assert "no baseline" in io_utils.read_string_file(f"{baseline.uri}/{note}")


ASKING: dict[str, Callable[[str], Any]] = {
    "isdir": fileio.isdir,
    "exists": fileio.exists,
    "listdir": fileio.listdir,
    "walk": lambda url: list(fileio.walk(url)),
    "read": fileio.open,
    "write": write,
    "find_baseline": lambda url: find_baseline(url, "/candidate"),
    "find_files": find_files,
}


@pytest.fixture(scope="module")
def nowhere() -> Iterator[str]:
    """An endpoint that nothing listens at."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{holder.getsockname()[1]}"


@pytest.fixture
def once(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have clients try once."""
    monkeypatch.setattr(retry, "RETRY_POLICY", RetryPolicy(first_deadline=0, deadline=0))


def said(operation: Callable[[str], Any], url: str = "minio://bucket/run") -> str:
    with pytest.raises(UserError) as caught:
        operation(url)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    assert not any(secret in message for secret in (ACCESS_KEY, SECRET_KEY, "password"))
    return message


@pytest.mark.parametrize("operation", ASKING.values(), ids=ASKING.keys())
def test_a_dead_endpoint_gives_one_sentence(
    nowhere: str, once: None, monkeypatch: pytest.MonkeyPatch, operation: Callable[[str], Any]
) -> None:
    set_up_client(monkeypatch, nowhere)
    message = said(operation)
    assert f"Cannot reach the object store at {nowhere} (EndpointConnectionError)" in message
    assert "set AWS_ENDPOINT_URL" in message


@pytest.mark.parametrize("endpoint", ["http://me:password@127.0.0.1:1", "127.0.0.1:9000", "minio"])
def test_a_wrong_endpoint(once: None, monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    assert "set AWS_ENDPOINT_URL" in said(fileio.isdir)
    assert "set AWS_ENDPOINT_URL" in said(find_files)


@pytest.mark.parametrize("missing", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_missing_credentials(server: str, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.delenv(missing)
    forget_clients()
    for operation in (fileio.isdir, write, find_files):
        assert said(operation) == (
            f"There are no credentials for the object store at {server}: "
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    forget_clients()


def test_a_missing_bucket_is_named(endpoint: str) -> None:
    sentence = f"There is no bucket no-such-bucket in the object store at {endpoint}"
    for operation in (write, fileio.open, fileio.listdir, find_files):
        assert said(operation, "minio://no-such-bucket/run").startswith(sentence)


def test_refused_access_gives_one_sentence(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    denied = Mock(side_effect=PermissionError("Access Denied."))
    monkeypatch.setattr(S3FileSystem, "_call_s3", denied)
    message = said(fileio.open, "minio://bucket/run/x")
    assert message == (
        f"Access to minio://bucket/run/x in the object store at {endpoint} was refused "
        "(Access Denied): check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
    )

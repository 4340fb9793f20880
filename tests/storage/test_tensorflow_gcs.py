import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorflow as tf

from benchmarks.gcs_server.tls_proxy import TlsGcsServer
from components.contract.example import ENCODED, LABEL_ID
from components.records.record_index import read_rows, write_indexed_shard
from components.records.shard_files import list_shards, read_index, remove_shards, write_index
from components.storage.artifact_files import list_names

# TensorFlow's own client against a real server, with its pauses.
pytestmark = pytest.mark.slow

gfile = tf.io.gfile
RECORDS = [bytes([number]) * 10_000 for number in range(40)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the bucket `disk`."""
    return tmp_path_factory.mktemp("disk")


@pytest.fixture(scope="module")
def started(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsGcsServer]:
    with TlsGcsServer({"disk": folder}) as server, pytest.MonkeyPatch.context() as patch:
        variables = server.tensorflow_environment(tmp_path_factory.mktemp("certificate"))
        for name, value in variables.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture
def server(started: TlsGcsServer) -> TlsGcsServer:
    """The server, which has counted nothing."""
    started.counts.clear()
    return started


def read(path: str) -> bytes:
    return bytes(gfile.GFile(path, "rb").read())


def write(path: str, data: bytes) -> None:
    with gfile.GFile(path, "wb") as file:
        file.write(data)


def read_records(pattern: str) -> list[bytes]:
    return list(tf.data.TFRecordDataset(gfile.glob(pattern)).as_numpy_iterator())


def test_a_shard_is_one_request(server: TlsGcsServer, folder: Path) -> None:
    with tf.io.TFRecordWriter(str(folder / "shard-0")) as writer:
        for record in RECORDS:
            writer.write(record)
    assert read_records("gs://disk/shard-*") == RECORDS
    assert server.counts == {"list": 1, "media": 1}


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_writes(server: TlsGcsServer, folder: Path, size: int) -> None:
    # A header that is taken out of requests, in content that has to stay as it is.
    data = (b"PUT \r\nTransfer-Encoding: identity\r\n" + os.urandom(size))[:size]
    begin = time.perf_counter()
    write(f"gs://disk/out/{size}", data)
    # curl waits for a second if its Expect is not answered.
    assert time.perf_counter() - begin < 0.9
    assert server.counts == {"upload": 2}
    assert (folder / f"out/{size}").read_bytes() == data
    assert read(f"gs://disk/out/{size}") == data


def test_folders(server: TlsGcsServer, folder: Path) -> None:
    gfile.makedirs("gs://disk/run/tmp/deep")
    assert gfile.isdir("gs://disk/run/tmp/deep")
    write("gs://disk/run/tmp/deep/model", b"weights")
    gfile.rename("gs://disk/run/tmp", "gs://disk/run/1")
    assert gfile.listdir("gs://disk/run") == ["1/"]
    assert read("gs://disk/run/1/deep/model") == b"weights"
    assert (folder / "run/1/deep/model").read_bytes() == b"weights"
    assert not (folder / "run/tmp/deep/model").exists()
    gfile.rmtree("gs://disk/run")
    assert not gfile.exists("gs://disk/run")


@pytest.mark.parametrize("remote", [True, False])
def test_shards_and_their_indexes(server: TlsGcsServer, tmp_path: Path, remote: bool) -> None:
    examples = "gs://disk/examples" if remote else str(tmp_path)
    records = [{ENCODED: bytes([n]) * 100, LABEL_ID: n} for n in range(3)]
    assert write_indexed_shard(examples, "train", "shard-0", records) == 3
    write_index(examples, {"train": {"shard-0": 3}})
    assert read_index(examples) == {"splits": {"train": {"shard-0": 3}}}
    assert list_names(examples) == ["Split-train", "index.json", "records"]
    [shard] = list_shards(examples, "train")
    [rows] = read_rows(examples, "train", ["shard-0"])
    data = read(shard)
    assert [(data[at : at + size], n) for at, size, n in rows] == [
        (record[ENCODED], record[LABEL_ID]) for record in records
    ]
    with pytest.raises(FileNotFoundError):
        read_rows(examples, "train", ["shard-1"])
    remove_shards(examples)
    assert list_names(examples) == ["records"]
    assert list_names(f"{examples}/none") == []

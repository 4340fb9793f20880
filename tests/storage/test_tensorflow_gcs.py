"""Shards in a bucket, through TensorFlow's own client."""

from pathlib import Path

import pytest
import tensorflow as tf

from benchmarks.gcs_server.tls_proxy import TlsGcsServer
from components.contract.artifact_files import list_names
from components.contract.example import ENCODED, LABEL_ID
from components.records.record_index import read_rows, write_indexed_shard
from components.records.shard_files import list_shards, read_index, remove_shards, write_index


@pytest.mark.slow
def test_shards_and_their_indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "disk").mkdir()
    with TlsGcsServer({"disk": tmp_path / "disk"}) as server:
        for name, value in server.tensorflow_environment(tmp_path).items():
            monkeypatch.setenv(name, value)
        for examples in ("gs://disk/examples", str(tmp_path / "examples")):
            check_shards(examples)


def check_shards(examples: str) -> None:
    records = [{ENCODED: bytes([n]) * 100, LABEL_ID: n} for n in range(3)]
    assert write_indexed_shard(examples, "train", "shard-0", records) == 3
    write_index(examples, {"train": {"shard-0": 3}})
    assert read_index(examples) == {"splits": {"train": {"shard-0": 3}}}
    assert list_names(examples) == ["Split-train", "index.json", "records"]
    [shard] = list_shards(examples, "train")
    [rows] = read_rows(examples, "train", ["shard-0"])
    data = tf.io.gfile.GFile(shard, "rb").read()
    assert [(data[at : at + size], n) for at, size, n in rows] == [
        (record[ENCODED], record[LABEL_ID]) for record in records
    ]
    with pytest.raises(FileNotFoundError):
        read_rows(examples, "train", ["shard-1"])
    remove_shards(examples)
    assert list_names(examples) == ["records"]
    assert list_names(f"{examples}/none") == []

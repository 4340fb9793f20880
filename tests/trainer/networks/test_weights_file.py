"""Weights files, checked before a run without TensorFlow."""

import os
import subprocess
import sys
from pathlib import Path

import fsspec
import numpy as np
import pytest

from components.contract.errors import ModelError, StorageError
from components.trainer.config.model import ModelConfig
from components.trainer.networks.weights_file import (
    name_network,
    read_weights,
    weights_version,
    write_weights,
)

LAYERS = {
    "conv": [np.arange(6, dtype=np.float32).reshape(2, 3)],
    "block/norm": [np.ones(3, np.float32), np.zeros(3, np.float32)],
}


def config(weights: str | Path) -> ModelConfig:
    return ModelConfig(name="cnn", weights=str(weights))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "backbone.npz"
    write_weights(str(path), LAYERS, network="cnn")
    return path


def test_what_was_written_is_read_in_order(file: Path) -> None:
    stored = read_weights(str(file))
    assert (stored.network, list(stored.layers)) == ("cnn", [*LAYERS])
    for name, arrays in LAYERS.items():
        for ours, theirs in zip(stored.layers[name], arrays, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_file_in_a_store_is_read(file: Path) -> None:
    with fsspec.open("memory://bucket/backbone.npz", "wb") as copy:
        copy.write(file.read_bytes())
    url = "memory://bucket/backbone.npz"
    name_network(config(url))
    stored = read_weights(url)
    assert (stored.network, list(stored.layers)) == ("cnn", [*LAYERS])
    for name, arrays in LAYERS.items():
        for ours, theirs in zip(stored.layers[name], arrays, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.npz", None, "does not exist"),
        ("folder", b"", "is a folder: name a weights file"),
        ("model.pt", b"\x80\x02pickle", "or not a weights file"),
        ("empty.npz", b"", "or not a weights file"),
        ("model.h5", b"\x89HDF\r\n", r"or not a weights file: .* a model.build_fn can load others"),
        ("model.keras", b"PK\x03\x04", "or not a weights file"),
    ],
)
def test_other_files_are_rejected_before_the_run(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=message):
        name_network(config(path))


def test_an_unknown_store_is_rejected() -> None:
    with pytest.raises(StorageError, match=r"nowhere://"):
        name_network(config("nowhere://bucket/w.npz"))


def test_a_truncated_file_is_one_sentence(file: Path) -> None:
    os.truncate(file, int(file.stat().st_size * 0.9))
    with pytest.raises(ModelError, match=r"backbone.npz is damaged"):
        read_weights(str(file))


def test_a_flipped_bit_is_one_sentence(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[content.index(LAYERS["conv"][0].tobytes())] ^= 1
    file.write_bytes(content)
    with pytest.raises(ModelError, match=r"is damaged"):
        read_weights(str(file))


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    with (tmp_path / "w.npz").open("wb") as file:
        np.savez(file, **{"network": np.array("cnn"), "conv/0": np.array([{}], object)})
    with pytest.raises(ModelError, match=r"is damaged"):
        read_weights(str(tmp_path / "w.npz"))


def test_the_version_changes_with_the_file(file: Path) -> None:
    before = weights_version(config(file))
    assert weights_version(config(file)) == before != ""
    write_weights(str(file), {"conv": [np.zeros(7)]}, network="cnn")
    os.utime(file, ns=(1, 1))
    assert weights_version(config(file)) != before


def test_checks_before_a_run_do_not_import_tensorflow() -> None:
    modules = "components.trainer.networks.weights_file, pipeline_def.local.first_look"
    code = f"import sys, {modules}; sys.exit('tensorflow' in sys.modules)"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


@pytest.mark.parametrize(
    ("written_by", "wanted", "name"),
    [
        pytest.param("resnet9", "auto", "resnet9", id="ours"),
        pytest.param("resnet9", "cnn", "cnn", id="named by the user"),
        pytest.param("somebody's", "auto", "auto", id="of another program"),
    ],
)
def test_our_files_name_their_network(
    tmp_path: Path, written_by: str, wanted: str, name: str
) -> None:
    path = tmp_path / "w.npz"
    write_weights(str(path), LAYERS, network=written_by)
    assert name_network(ModelConfig(name=wanted, weights=str(path))).name == name

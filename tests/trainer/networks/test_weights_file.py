"""Weights files, checked before a run without TensorFlow."""

import os
import subprocess
import sys
from pathlib import Path

import fsspec
import h5py  # type: ignore[import-untyped]
import numpy as np
import pytest

from components.contract.errors import ModelError, StorageError
from components.trainer.config.model import ModelConfig
from components.trainer.networks.weights import write_weights
from components.trainer.networks.weights_file import name_network, read_weights, weights_version

LAYERS = {
    "conv": [np.arange(6, dtype=np.float32).reshape(2, 3)],
    "block/norm": [np.ones(3, np.float32), np.zeros(3, np.float32)],
}


def config(weights: str | Path) -> ModelConfig:
    return ModelConfig(name="cnn", weights=str(weights))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "backbone.weights.h5"
    write_weights(str(path), LAYERS, network="cnn")
    return path


def test_names_of_many_layers_are_read_whole(tmp_path: Path) -> None:
    """Whatever HDF5's limit, and split into several attributes as Keras does."""
    layers = {f"layer_{number:060d}": [np.zeros(1)] for number in range(1200)}
    path = tmp_path / "w.h5"
    write_weights(str(path), layers, network="")
    assert list(read_weights(str(path)).layers) == [*layers]
    with h5py.File(path, "a") as file:
        names = file.attrs["layer_names"]
        del file.attrs["layer_names"]
        file.attrs["layer_names0"], file.attrs["layer_names1"] = names[:500], names[500:]
    assert list(read_weights(str(path)).layers) == [*layers]


def test_a_file_in_a_store_is_read_in_order(file: Path) -> None:
    url = "memory://bucket/backbone.weights.h5"
    with fsspec.open(url, "wb") as copy:
        copy.write(file.read_bytes())
    name_network(config(url))
    stored = read_weights(url)
    assert (stored.network, list(stored.layers)) == ("cnn", [*LAYERS])
    for name, arrays in LAYERS.items():
        for ours, theirs in zip(stored.layers[name], arrays, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.h5", None, "does not exist"),
        ("folder", b"", "is a folder: name a weights file"),
        ("model.pt", b"\x80\x02pickle", "not a weights file of Keras"),
        ("empty.h5", b"", "not a weights file of Keras"),
        ("model.keras", b"PK\x03\x04", r"not a weights file of Keras: .* save"),
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
        name_network(config("nowhere://bucket/w.h5"))


def test_a_damaged_file_is_left_to_the_trainer_in_which_it_is_one_sentence(file: Path) -> None:
    whole = bytearray(file.read_bytes())
    file.write_bytes(whole[: int(len(whole) * 0.9)])
    with pytest.raises(ModelError, match=r"backbone.weights.h5 is damaged"):
        read_weights(str(file))
    whole[whole.index(b"OHDR") + 8] ^= 0xFF
    file.write_bytes(whole)
    assert name_network(ModelConfig(weights=str(file))).name == "auto"
    with pytest.raises(ModelError, match=r"is damaged"):
        read_weights(str(file))


def test_arrays_of_other_files_are_not_read(file: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"0123")
    with h5py.File(file, "a") as opened:
        del opened["conv/0"]
        opened["conv"].create_dataset("0", (1,), "<f4", external=[(str(secret), 0, 4)])
    with pytest.raises(ModelError, match=r"conv/0 links to another file"):
        read_weights(str(file))
    with h5py.File(file, "a") as opened:
        del opened["conv/0"]
        opened["conv/0"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/array")
    with pytest.raises(ModelError, match=r"is damaged"):
        read_weights(str(file))


def test_groups_of_other_files_are_not_read(file: Path, tmp_path: Path) -> None:
    other, linked = str(tmp_path / "other.h5"), tmp_path / "linked.h5"
    write_weights(other, {"conv": [np.ones(7)]}, network="cnn")
    with h5py.File(linked, "w") as opened:
        opened["model_weights"] = h5py.ExternalLink(other, "/")
    with pytest.raises(ModelError, match=r"model_weights is a link"):
        read_weights(str(linked))
    with h5py.File(file, "a") as opened:
        opened["there"] = h5py.ExternalLink(other, "/")
        opened["conv2"] = h5py.SoftLink("/there/conv")
        opened.attrs["layer_names"] = ["conv2"]
    with pytest.raises(ModelError, match=r"conv2 is a link"):
        read_weights(str(file))


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
    path = tmp_path / "w.h5"
    write_weights(str(path), LAYERS, network=written_by)
    assert name_network(ModelConfig(name=wanted, weights=str(path))).name == name

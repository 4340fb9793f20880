"""Other formats: converted, run by their own runtimes, and measured."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from PIL import Image
from tf_keras.src.applications import convnext

from components.contract.errors import ConfigurationError
from components.contract.example import ENCODED, FILENAME
from components.evaluation.format_measurement import measure_formats
from components.host.machine import require_formats
from components.images.options import TransformConfig
from components.metrics.evaluation_files import Judgment, Verdict, read_judgment, write_judgment
from components.metrics.predictions import Evaluated, Predictions
from components.records.shard_files import open_shard, shard_path, write_index
from components.records.tfrecord import serialize
from components.trainer.config.model import ModelConfig
from components.trainer.export.conversion_process import convert
from components.trainer.export.formats import export_formats, find_reason
from components.trainer.export.signatures import Classifier
from components.trainer.networks.parts import Parts
from tests.pictures import COLOURS, encode, picture
from tests.trainer.networks.networks import build

SIZE = 16
CONFIG = TransformConfig(size=SIZE, storage="png")
KINDS: Any = ["onnx", "float16", "dynamic", "int8"]
IMAGES = 24
# One network of each family, whose others have the same kinds of layers.
FAMILIES = (
    *("mobilenet_v2", "mobilenet_v3_large", "efficientnet_v2_b0", "resnet50", "resnet50_v2"),
    *("densenet121", "convnext_tiny"),
)


def network(*, odd: bool = False) -> tf_keras.Model:
    """Return a model whose logits are the mean blue, green and red; `odd`: no format has it."""
    images = tf_keras.layers.Input([SIZE, SIZE, 3], dtype=tf.uint8)
    pixels = tf_keras.layers.Rescaling(1 / 32)(images)
    convolved = tf_keras.layers.Conv2D(3, 1, kernel_initializer=_reversed, use_bias=False)(pixels)
    means = tf_keras.layers.GlobalAveragePooling2D()(convolved)
    return tf_keras.Model(images, tf.math.lgamma(means) if odd else means)


def _reversed(shape: Any, dtype: Any = None) -> tf.Tensor:
    return tf.reshape(tf.reverse(tf.eye(3), [1]), shape)


def pixels_of(number: int, side: int = SIZE) -> Any:
    colour = list(COLOURS)[number % 3]
    return np.asarray(picture(number, colour=colour, height=side, width=side))


def run_onnx(path: Path, pixels: Any) -> Any:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(["probabilities"], {"images": pixels})[0]


def run_lite(path: Path, pixels: Any) -> Any:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path))
    [taken] = interpreter.get_input_details()
    assert taken["dtype"] == np.uint8
    assert list(taken["shape_signature"]) == [-1, *pixels.shape[1:]]
    interpreter.resize_tensor_input(taken["index"], pixels.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(taken["index"], pixels)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


@pytest.mark.slow
@pytest.mark.usefixtures("converting_here")
def test_formats_match_the_model_and_are_measured(tmp_path: Path) -> None:
    classifier, labels = Classifier(network(), temperature=2.0), list(COLOURS)
    images = [pixels_of(number) for number in range(IMAGES)]
    ingest = {"shrink": 20, "quality": 90}
    folder = tmp_path / "model" / "Format-Exports"
    choices: dict[str, Any] = {"labels": labels, "config": CONFIG, "ingest": ingest}
    export_formats(classifier, KINDS, str(folder), images=images, **choices)
    names = [f"{number:03d}.png" for number in range(IMAGES)]
    path = shard_path(str(tmp_path), "eval", 0, 1)
    with open_shard(path) as writer:
        for name, image in zip(names, images, strict=True):
            features: dict[str, Any] = {ENCODED: encode(Image.fromarray(image), "PNG")}
            writer.write(serialize(features | {FILENAME: name}))
    write_index(str(tmp_path), {"eval": {Path(path).name: IMAGES}})

    known = classifier.probabilities(tf.constant(np.stack(images))).numpy()
    assert np.abs(run_onnx(folder / "model.onnx", np.stack(images)) - known).max() < 1e-5
    for kind, tolerance in (("float16", 1e-3), ("dynamic", 0.02), ("int8", 0.05)):
        answers = run_lite(folder / f"{kind}.tflite", np.stack(images))
        np.testing.assert_allclose(answers, known, atol=tolerance)
    assert (folder / "labels.txt").read_text() == "blue\ngreen\nred\n"
    manifest = json.loads((folder / "formats.json").read_text())
    assert manifest["ingest"] == ingest
    _check_golden(folder, manifest)

    truth = np.arange(IMAGES) % 3
    _check_measured(tmp_path, names, truth, known, wrong=0)
    # As if the model were right about a quarter of the images where the formats are wrong.
    turned = np.where((np.arange(IMAGES) < IMAGES // 4)[:, np.newaxis], known[:, [1, 2, 0]], known)
    _check_measured(tmp_path, names, turned.argmax(axis=1), turned, wrong=IMAGES // 4)


def _check_golden(folder: Path, manifest: Any) -> None:
    sizes = set()
    for golden in manifest["golden"]:
        pixels, seen = (np.asarray(Image.open(folder / golden[key])) for key in ("input", "seen"))
        sizes.add(pixels.shape)
        [probabilities] = run_onnx(folder / "model.onnx", pixels[np.newaxis])
        np.testing.assert_allclose(probabilities, golden["probabilities"], atol=0.01)
        [probabilities] = run_lite(folder / "float16.tflite", seen[np.newaxis])
        np.testing.assert_allclose(probabilities, golden["probabilities"], atol=0.002)
    assert sizes == {(16, 16, 3), (33, 48, 3), (80, 61, 3), (8, 11, 3)}


def _check_measured(tmp_path: Path, names: Any, ids: Any, known: Any, *, wrong: int) -> None:
    predictions = Predictions(tuple(COLOURS), ids, known.astype(np.float32))
    evaluated = Evaluated(tuple(names), {}, predictions, None)
    lost = wrong / IMAGES
    results = measure_formats(
        str(tmp_path / "model"), str(tmp_path), "eval", lambda: evaluated, max_drop=0.01
    )
    assert [result.kind for result in results] == KINDS
    for result in results:
        assert result.accuracy == pytest.approx(1 - lost)
        assert result.drop == pytest.approx(lost)
        assert result.interval is not None
        assert result.interval.low <= lost <= result.interval.high
        assert result.agreement == pytest.approx(1 - lost)
        assert (result.difference > 0.3) == bool(wrong)
        assert result.bytes > 500
        assert result.images_per_second > 0
        assert bool(result.reason) == bool(wrong)
        assert "0.250 below that of the model; at most 0.01" in result.reason or not wrong
    judgment = Judgment(Verdict("blessed", "", []), {}, tuple(results))
    write_judgment(str(tmp_path), judgment)
    assert read_judgment(str(tmp_path)) == judgment


@pytest.mark.slow
@pytest.mark.usefixtures("converting_here")
@pytest.mark.parametrize(
    "name",
    [*("cnn", "resnet9"), *(pytest.param(name, marks=pytest.mark.weekly) for name in FAMILIES)],
)
def test_networks_have_every_format_and_answer_alike_as_onnx(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images of any size, next to what TensorFlow sees and answers."""
    # All its kinds of layers, in a fraction of the time.
    small = {"depths": [1, 1, 1, 1], "projection_dims": [8, 16, 32, 64], "default_size": 224}
    monkeypatch.setitem(convnext.MODEL_CONFIGS, "tiny", small)
    config = TransformConfig(size=32)
    classifier = Classifier(build(ModelConfig(name=name)))
    images = [pixels_of(number, 32) for number in range(16)]
    given: dict[str, Any] = {"labels": list("abcde"), "config": config, "ingest": {}}
    export_formats(classifier, KINDS, str(tmp_path), images=images, **given)
    facts = json.loads((tmp_path / "formats.json").read_text())
    assert facts["failed"] == {}
    for golden in facts["golden"]:
        pixels = np.asarray(Image.open(tmp_path / golden["input"]))
        [probabilities] = run_onnx(tmp_path / "model.onnx", pixels[np.newaxis])
        np.testing.assert_allclose(probabilities, golden["probabilities"], atol=0.01)


CUDA = "E0000 00:00:1795.3 30 cuda_platform.cc:52] failed call to cuInit: CUDA error: UNKNOWN (303)"
OLDER = "2026-11-28 08:49:00.997: E external/cuda.cc:10] failed call to cuInit: CUDA error: UNKNOWN"
LOGGED = f"{CUDA}\n{OLDER}\n"
FRAMES = f'{LOGGED}Traceback (most recent call last):\n  File "x.py", line 1, in y\n    y()\n'


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (f"{FRAMES}ValueError: no Erfc\n", "ValueError: no Erfc"),
        (f"{FRAMES}KeyError: 1\n\nDuring …:\n\n{FRAMES}TypeError: 2\nmore\n", "TypeError: 2"),
        (
            f"{FRAMES}ConverterError: <unknown>:0: note: here\n<unknown>:0: error: 'tf.Lgamma'\n",
            "<unknown>:0: error: 'tf.Lgamma'",
        ),
        (f"{LOGGED}LLVM ERROR: no Lgamma\n#0 0x1 in abort\n", "LLVM ERROR: no Lgamma"),
        (f"{LOGGED}Bus error\n", "Bus error"),
        ("", ""),
    ],
)
def test_the_reason_is_that_of_the_last_exception(log: str, reason: str) -> None:
    assert find_reason(log) == reason


def test_erfc_and_captured_constants_become_onnx(tmp_path: Path) -> None:
    """As in TensorFlow 2.21's GELU, which ONNX lacks, and in Keras's Normalization."""
    served, scale = tf.Module(), tf.constant([255.0, 200.0, 100.0])
    spec = tf.TensorSpec([None, None, None, 3], tf.uint8, name="images")

    @tf.function(input_signature=[spec])
    def answer(images: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"probabilities": tf.math.erfc(tf.cast(images, tf.float32) / scale)}

    served.answer = answer
    tf.saved_model.save(served, str(tmp_path / "model"), signatures={"serving_default": answer})
    (tmp_path / "facts.json").write_text("{}")
    file = str(tmp_path / "model.onnx")
    convert("onnx", str(tmp_path / "model"), "", str(tmp_path / "facts.json"), file)
    pixels = np.arange(24, dtype=np.uint8).reshape(1, 2, 4, 3) * 10
    [probabilities] = run_onnx(Path(file), pixels)
    np.testing.assert_allclose(probabilities, answer(pixels)["probabilities"][0], atol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("converting_here")
def test_pretrained_networks_lose_little_in_all_formats(tmp_path: Path) -> None:
    """A ridge regression on features of EfficientNet-Lite, whose activations are not random."""
    side, count = 32, 24
    model = build(ModelConfig(name="efficientnet_lite0", weights="imagenet"), size=side, classes=3)
    images = np.stack([pixels_of(number, side) for number in range(count)])
    parts, classes = Parts.of(model), np.arange(count) % 3
    features = parts.backbone(images).numpy()
    penalty = 0.1 * np.trace(features @ features.T) / count
    kernel = np.linalg.solve(features @ features.T + penalty * np.eye(count), np.eye(3)[classes])
    parts.head.get_layer("logits").set_weights([10 * features.T @ kernel, np.zeros(3)])
    classifier = Classifier(model)
    known = classifier.probabilities(tf.constant(images)).numpy()
    assert (known.argmax(axis=1) == classes).all()
    given: dict[str, Any] = {"labels": list(COLOURS), "config": TransformConfig(size=side)}
    export_formats(classifier, KINDS, str(tmp_path), images=images, **given, ingest={})
    np.testing.assert_allclose(run_onnx(tmp_path / "model.onnx", images), known, atol=2e-5)
    for kind, tolerance in (("float16", 0.002), ("dynamic", 0.02), ("int8", 0.04)):
        answers = run_lite(tmp_path / f"{kind}.tflite", images)
        assert np.abs(answers - known).mean() < tolerance
        assert (answers.argmax(axis=1) == classes).mean() > 0.95


@pytest.mark.slow
def test_formats_are_converted_in_a_process_whose_failure_is_reported(tmp_path: Path) -> None:
    images = [pixels_of(number) for number in range(3)]
    given: dict[str, Any] = {"labels": ["a"], "images": images, "config": CONFIG, "ingest": {}}
    folder = tmp_path / "Format-Exports"
    for odd, kind in ((False, "float16"), (True, "onnx")):
        kinds: Any = [kind]
        export_formats(Classifier(network(odd=odd)), kinds, str(folder), **given)
        failed = json.loads((folder / "formats.json").read_text())["failed"]
        assert set(failed) == ({kind} if odd else set())
    assert (folder / "float16.tflite").stat().st_size > 500
    nothing = Evaluated((), {}, Predictions((), np.array([]), np.zeros([0, 0], np.float32)), None)

    def measure(model: Path) -> list[Any]:
        return measure_formats(str(model), "none", "eval", lambda: nothing, max_drop=0)

    [reason] = [result.reason for result in measure(tmp_path)]
    assert reason.startswith("conversion failed: ")
    assert "Lgamma" in reason
    assert measure(tmp_path / "none") == []


def test_missing_packages_are_named_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    require_formats(["onnx", "int8"])
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    require_formats(["int8"])
    with pytest.raises(ConfigurationError, match=r"tf2onnx: run `uv sync --extra onnx`"):
        require_formats(["onnx"])

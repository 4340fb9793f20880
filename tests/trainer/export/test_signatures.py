"""Predictions for files that cannot be decoded, warm-up requests, and when exports are the same."""

import functools
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow_serving.apis import prediction_log_pb2

from components.contract.example import ENCODED
from components.images.canonical import canonicalize
from components.images.options import TransformConfig
from components.storage.saved_model import model_digest
from components.trainer.export.signatures import (
    Classifier,
    make_signatures,
    save_atomically,
    write_warmup,
)
from tests.pictures import encode, picture, png_bomb

CONFIG = TransformConfig(size=16, storage="raw")


@functools.cache
def signature() -> Any:
    """Return the signature of a model that predicts the mean color of an image."""
    images = tf_keras.layers.Input([16, 16, 3], dtype=tf.uint8)
    mean = tf_keras.layers.GlobalAveragePooling2D()(tf.cast(images, tf.float32) / 16)
    signatures = make_signatures(
        Classifier(tf_keras.Model(images, mean)),
        lambda features: {ENCODED: canonicalize(tf.squeeze(features[ENCODED], 1), CONFIG)},
        labels=[b"red", b"green", b"blue"],
        raw_spec={},
        config=CONFIG,
    )
    return signatures["serving_default"]


def predict(files: Sequence[bytes]) -> dict[str, Any]:
    outputs = signature()(image_bytes=tf.constant(files, tf.string))
    return {name: value.numpy() for name, value in outputs.items()}


def lying_jpeg(data: bytes) -> bytes:
    at = data.index(b"\xff\xc0")
    return data[: at + 5] + struct.pack(">HH", 60_000, 60_000) + data[at + 9 :]


JPEG, PNG, GIF, BMP = (encode(picture(1), kind) for kind in ("JPEG", "PNG", "GIF", "BMP"))
FAULTS = {
    "empty": (b"", "the file is empty"),
    "text": (b"not an image", "not an image: neither JPEG, PNG, GIF nor BMP"),
    "three bytes": (JPEG[:3], "JPEG: damaged or cut off"),
    "two bytes": (JPEG[:2], "not an image: neither JPEG, PNG, GIF nor BMP"),
    "JPEG without pixels": (JPEG[: len(JPEG) // 3], "JPEG: damaged or cut off"),
    "PNG cut in half": (PNG[: len(PNG) // 2], "PNG: damaged or cut off"),
    "GIF cut in half": (GIF[: len(GIF) // 2], "GIF: damaged or cut off"),
    "BMP cut in half": (BMP[: len(BMP) // 2], "BMP: damaged or cut off"),
    "WebP": (encode(picture(1), "WEBP"), "WebP is not supported: convert it to PNG or JPEG"),
    "TIFF": (encode(picture(1), "TIFF"), "TIFF is not supported: convert it to PNG or JPEG"),
    "AVIF": (
        encode(picture(1), "AVIF"),
        "HEIC or AVIF is not supported: convert it to PNG or JPEG",
    ),
    "JPEG with stray bytes": (JPEG[:20] + b"\0" + JPEG[20:], "JPEG: damaged or cut off"),
    "PNG bomb": (png_bomb(20_000, 20_000), "20000 x 20000 pixels exceed 50 million"),
    "JPEG bomb": (lying_jpeg(JPEG), "60000 x 60000 pixels exceed 50 million"),
    "sides whose product overflows": (
        png_bomb(2**32 - 1, 2**32 - 1),
        "4294967295 x 4294967295 pixels exceed 50 million",
    ),
    "GIF bomb": (
        GIF[:6] + struct.pack("<HH", 50_000, 40_000) + GIF[10:],
        "50000 x 40000 pixels exceed 50 million",
    ),
    "BMP bomb": (
        BMP[:18] + struct.pack("<ii", 50_000, -40_000) + BMP[26:],
        "50000 x 40000 pixels exceed 50 million",
    ),
    "too many bytes": (BMP + bytes(33 * 2**20), "33.0 MiB exceeds 32 MiB"),
}


@pytest.mark.slow
def test_bad_files_have_errors_and_good_ones_predictions() -> None:
    colours = ("red", "green", "blue")
    good = [encode(picture(3, colour=colour), "PNG") for colour in colours]
    alone = predict(good)
    assert alone["label"].tolist() == [b"red", b"green", b"blue"]
    assert alone["error"].tolist() == [b"", b"", b""]
    bad = [data for data, _ in FAULTS.values()]
    mixed = predict([good[0], *bad, good[1], b"", good[2]])
    reasons = dict(zip(FAULTS, mixed["error"][1:].astype(str), strict=False))
    assert reasons == {name: reason for name, (_, reason) in FAULTS.items()}
    places = [0, len(bad) + 1, len(bad) + 3]
    # The last bit may depend on the size of the batch.
    np.testing.assert_allclose(mixed["probabilities"][places], alone.pop("probabilities"), 1e-6)
    for name, values in alone.items():
        np.testing.assert_array_equal(mixed[name][places], values)
    others = np.setdiff1d(np.arange(len(bad) + 4), places)
    assert not mixed["probabilities"][others].any()
    assert set(mixed["label"][others]) == {b""}
    assert mixed["labels"].shape == (len(bad) + 4, 3)


@pytest.mark.slow
@pytest.mark.parametrize("files", [[], [b""], [b"", b"x"], [PNG[:50]]], ids=len)
def test_only_bad_files(files: list[bytes]) -> None:
    answers = predict(files)
    assert {name: len(values) for name, values in answers.items()} == dict.fromkeys(
        ("label", "labels", "probabilities", "error"), len(files)
    )
    assert not answers["probabilities"].any()
    assert not any(answers["label"])
    assert all(answers["error"])


def test_warmup_records_are_what_tensorflow_serving_reads(tmp_path: Path) -> None:
    write_warmup(str(tmp_path), [b"first", b"second"])
    # Path and message as in TensorFlow Serving's saved_model_warmup.cc.
    file = tmp_path / "assets.extra" / "tf_serving_warmup_requests"
    logs = [
        prediction_log_pb2.PredictionLog.FromString(record)
        for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator()
    ]
    assert [log.WhichOneof("log_type") for log in logs] == ["predict_log"] * 2
    requests = [log.predict_log.request for log in logs]
    assert {request.model_spec.signature_name for request in requests} == {"serving_default"}
    sent = [tf.make_ndarray(request.inputs["image_bytes"]).tolist() for request in requests]
    assert sent == [[b"first"], [b"first", b"second"]]


def test_two_exports_of_one_model_are_the_same_and_others_are_not(tmp_path: Path) -> None:
    def export(name: str, weight: float, identity: str) -> str:
        model = tf.Module()
        model.weight = tf.Variable(weight)
        signature = tf.TensorSpec([], tf.float32)
        scale = tf.function(lambda x: {"y": x * model.weight}, input_signature=[signature])
        save_atomically(model, str(tmp_path / name), {"serving_default": scale}, identity)
        return str(tmp_path / name)

    first, again = export("first", 2.0, "labels"), export("again", 2.0, "labels")
    graphs = [Path(model, "saved_model.pb").read_bytes() for model in (first, again)]
    assert graphs[0] != graphs[1], "TensorFlow's counters no longer differ: is the file needed?"
    assert model_digest(first) == model_digest(again)
    others = [export("weights", 3.0, "labels"), export("labels", 2.0, "other labels")]
    assert len({*map(model_digest, [first, *others])}) == 3

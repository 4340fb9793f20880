"""An image is known, or not, wherever the model answers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.contract.artifact_files import read_json
from components.contract.example import ENCODED
from components.images.canonical import canonicalize
from components.predict.model import RankingModel
from components.transform.config import TransformConfig
from pipeline_def.local.server.model import Model
from pipeline_def.local.server.versions import Versions
from pipeline_def.serving.formats import export_formats
from pipeline_def.serving.signatures import make_signatures, save_atomically
from tests.server.serving import ask, instances, running
from tests.server.test_inference_protocol import INFER, infer
from tests.training.test_known import COLORS, GRAY, SIZE, draw, fit, make_network


@pytest.mark.slow
@pytest.mark.usefixtures("converting_here")
def test_the_decision_is_the_same_everywhere(tmp_path: Path) -> None:
    classifier, unknowns = fit(make_network())
    config = TransformConfig(size=SIZE, storage="png")
    signatures = make_signatures(
        classifier,
        lambda features: {ENCODED: canonicalize(tf.squeeze(features[ENCODED], 1), config)},
        labels=[b"red", b"green", b"blue"],
        raw_spec={},
        config=config,
    )
    served = tf.Module()
    served.weights = classifier.model.variables
    folder = tmp_path / "pushed" / "7"
    save_atomically(served, str(folder), {"serving_default": signatures["serving_default"]})

    pixels = np.concatenate([draw(COLORS, 4, seed=7)[0], draw(GRAY, 12, seed=8)[0]])
    files = [tf.io.encode_png(image).numpy() for image in pixels]
    saved = tf.saved_model.load(str(folder)).signatures["serving_default"]
    outputs = saved(image_bytes=tf.constant(files))
    known, scores = outputs["known"].numpy().tolist(), outputs["known_score"].numpy()
    assert 0 < sum(known) < len(known)

    predicted = RankingModel(str(folder), top=1).predict(files)
    assert [of.known for of in predicted if not isinstance(of, str)] == known
    with running(Versions(str(folder.parent), Model)) as port:
        _, answer = ask(port, body=instances(*files))
        assert [row["known"] for row in answer["predictions"]] == known
        _, answer = ask(port, INFER, infer(*files))
    tensors = {of["name"]: of for of in answer["outputs"]}
    assert (tensors["known"]["datatype"], tensors["known"]["data"]) == ("BOOL", known)
    assert tensors["known_score"]["data"] == pytest.approx(scores.tolist())

    import onnxruntime

    kinds: Any = ["onnx", "float16", "int8"]
    export_formats(
        classifier,
        kinds,
        str(tmp_path),
        labels=["red", "green", "blue"],
        images=draw(COLORS, 30, seed=9)[0],
        config=config,
        ingest={},
    )
    manifest = read_json(str(tmp_path / "formats.json"))
    assert manifest["known_threshold"] == unknowns.threshold
    assert not manifest["failed"]
    for kind, tolerance in (("onnx", 1e-3), ("float16", 0.1), ("int8", 1)):
        if kind == "onnx":
            names = ["known", "known_score", "probabilities"]
            file = tmp_path / "model.onnx"
            session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
            found = dict(zip(names, session.run(names, {"images": pixels}), strict=True))
        else:
            interpreter = tf.lite.Interpreter(model_path=str(tmp_path / f"{kind}.tflite"))
            found = interpreter.get_signature_runner()(images=pixels)
        assert found["known"].tolist() == known, kind
        np.testing.assert_allclose(found["known_score"], scores, atol=tolerance)
        assert found["probabilities"].shape == (len(files), 3)

#!/bin/bash
# tf2onnx 1.17.0: `tf.image.resize` with the method "area" becomes nearest neighbor. The converter
# knows bilinear and bicubic and maps anything else to "nearest", so a model that averages the
# pixels of each area picks one of them once converted, without a warning. Seen: a checkerboard of 0
# and 255, halved, is 127.5 everywhere in TensorFlow and 0 everywhere in ONNX Runtime. On noise the
# two differ by 53 of 255 on average. A model that shrinks its own input by area, for instance with
# `keras.layers.Resizing`, sees other images in production than in training. Bilinear converts
# exactly.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet uv==0.13.9
"$folder/venv/bin/uv" pip install --quiet --python "$folder/venv/bin/python" tensorflow-cpu==2.21.0 tf2onnx==1.17.0 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import onnxruntime
import tensorflow as tf
import tf2onnx

print("tf2onnx", tf2onnx.__version__, "ONNX Runtime", onnxruntime.__version__)
board = 255.0 * (np.indices((64, 64)).sum(0) % 2)
noise = np.random.default_rng(0).integers(0, 256, (64, 64))
images = np.stack([board, noise])[..., np.newaxis].astype("float32")
signature = [tf.TensorSpec([2, 64, 64, 1], tf.float32, "images")]
differences = {}
for method in ("bilinear", "area"):
    resize = tf.function(
        lambda images: tf.image.resize(images, (32, 32), method), signature, autograph=False
    )
    model, _ = tf2onnx.convert.from_function(resize, signature)
    [node] = [node for node in model.graph.node if node.op_type == "Resize"]
    [mode] = [attribute.s.decode() for attribute in node.attribute if attribute.name == "mode"]
    session = onnxruntime.InferenceSession(model.SerializeToString())
    [converted] = session.run(None, {"images": images})
    original = resize(images).numpy()
    differences[method] = np.abs(original - converted).mean((1, 2, 3)).round(1).tolist()
    print(
        f"{method} is {mode}: the board has {np.unique(original[0])} in TensorFlow and "
        f"{np.unique(converted[0])} in ONNX Runtime; mean differences {differences[method]}"
    )
assert max(differences["bilinear"]) < 0.01
assert min(differences["area"]) > 30
PYTHON

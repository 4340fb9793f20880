#!/bin/bash
# TensorFlow Transform 1.16.0: one NaN turns `scale_to_0_1` into a sigmoid for the whole feature.
# The minimum and the maximum become NaN, so "minimum < maximum" is false, and the function takes
# the branch for features with a single value, which applies a sigmoid to the raw value. Of 10,000
# values between 0 and 100, one of them NaN, 95% come out above 0.99 instead of 1%. All but the NaN
# are finite and between 0 and 1, so a check of the range finds nothing. `scale_to_z_score`, in
# contrast, leaves the NaN out of its mean and deviation.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet uv==0.13.9
"$folder/venv/bin/uv" pip install --quiet --python "$folder/venv/bin/python" tensorflow-transform==1.16.0 tfx-bsl==1.16.1 tf-keras==2.16.0 apache-beam==2.72.0 dill==0.4.1
cat >"$folder/scaling.py" <<'PYTHON'
import logging
import tempfile

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform import beam
from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils

logging.disable(logging.WARNING)
print("TensorFlow Transform", tft.__version__)
schema = schema_utils.schema_from_feature_spec({"value": tf.io.FixedLenFeature([], tf.float32)})


def preprocess(inputs):
    value = inputs["value"]
    return {"scaled": tft.scale_to_0_1(value), "z": tft.scale_to_z_score(value)}


def transformed(values):
    rows = [{"value": float(value)} for value in values]
    with tempfile.TemporaryDirectory() as folder, beam.Context(temp_dir=folder):
        step = beam.AnalyzeAndTransformDataset(preprocess)
        (found, _), _ = (rows, dataset_metadata.DatasetMetadata(schema)) | step
    return {name: np.array([row[name] for row in found]) for name in ("scaled", "z")}


values = np.random.default_rng(0).uniform(0, 100, 10_000)
high, spread = {}, {}
for name, replaced in (("no NaN", values), ("one NaN", np.append(values[1:], np.nan))):
    found = transformed(replaced)
    kept = found["scaled"][np.isfinite(replaced)]
    assert np.isfinite(kept).all() and kept.min() >= 0 and kept.max() <= 1
    high[name] = float((kept > 0.99).mean())
    spread[name] = float(np.nanstd(found["z"]))
    print(
        f"{name}: scaled from {kept.min():.2f} to {kept.max():.2f}, mean {kept.mean():.3f}, "
        f"{high[name]:.1%} above 0.99; z-score's standard deviation {spread[name]:.3f}"
    )
assert high["no NaN"] < 0.02 and high["one NaN"] > 0.9
assert all(abs(value - 1) < 0.01 for value in spread.values())
PYTHON
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" -W ignore "$folder/scaling.py"

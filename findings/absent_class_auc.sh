#!/bin/bash
# TensorFlow Model Analysis 0.47.1: the AUC of a class without a single example is 0.0, and counts
# in the macro average. A split of 200 examples that lacks one of three classes, predicted without
# an error, so has a macro AUC of 0.667 instead of 1.0; scikit-learn calls the AUC of such a class
# undefined. A slice with few examples of some classes looks like a bad model that way, and a
# threshold on the average refuses it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet uv==0.13.9
"$folder/venv/bin/uv" pip install --quiet --python "$folder/venv/bin/python" tensorflow-model-analysis==0.47.1 tfx-bsl==1.16.1 tf-keras==2.16.0 apache-beam==2.72.0 dill==0.4.1
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import pandas as pd
import tensorflow_model_analysis as tfma
from google.protobuf import text_format

print("TensorFlow Model Analysis", tfma.__version__)
CONFIG = """
model_specs { label_key: "label" prediction_key: "prediction" }
slicing_specs {}
metrics_specs {
  metrics { class_name: "AUC" }
  binarize { class_ids { values: [0, 1, 2] } }
  aggregate {
    macro_average: true
    class_weights { key: 0 value: 1.0 }
    class_weights { key: 1 value: 1.0 }
    class_weights { key: 2 value: 1.0 }
  }
}
"""
labels = np.random.default_rng(0).integers(0, 2, 200)  # Never 2.
predictions = np.full((200, 3), 0.05)
predictions[np.arange(200), labels] = 0.9
frame = pd.DataFrame({"label": labels.tolist(), "prediction": predictions.tolist()})
result = tfma.analyze_raw_data(frame, text_format.Parse(CONFIG, tfma.EvalConfig()))
[(_, metrics)] = result.slicing_metrics
found = {
    key: round(value["auc"]["doubleValue"], 3)
    for by_key in metrics.values()
    for key, value in by_key.items()
    if "auc" in value
} | {
    "macro": round(value["doubleValue"], 3)
    for by_key in metrics.values()
    for values in by_key.values()
    for name, value in values.items()
    if name != "auc"
}
print(found)
expected = {"classId:0": 1.0, "classId:1": 1.0, "classId:2": 0.0, "macro": 0.667}
raise SystemExit(found != expected)
PYTHON

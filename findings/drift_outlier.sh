#!/bin/bash
# TensorFlow Data Validation 1.16.1: one extreme value per day can hide the drift of a numeric
# feature. The Jensen-Shannon divergence compares histograms of ten buckets of equal width between
# the minimum and the maximum, so a single 65,535 for "unknown" among 10,000 distances of about 200
# puts all the others into one bucket. If both days have one, and the typical distance halves, the
# divergence is 0.009 instead of 0.997, less than between two samples of one distribution, and the
# check passes. With `source.type` set to QUANTILES the comparator finds 0.90.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet uv==0.13.9
"$folder/venv/bin/uv" pip install --quiet --python "$folder/venv/bin/python" tensorflow-data-validation==1.16.1 apache-beam==2.72.0 dill==0.4.1
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import pandas as pd
import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import schema_pb2

print("TensorFlow Data Validation", tfdv.__version__)
random = np.random.default_rng(0)
before, after = random.normal(200, 20, 10_000), random.normal(100, 10, 10_000)
unchanged = random.normal(200, 20, 10_000)


def drift(before, after, source="DEFAULT"):
    old, new = (
        tfdv.generate_statistics_from_dataframe(pd.DataFrame({"distance": distances}))
        for distances in (before, after)
    )
    schema = tfdv.infer_schema(old)
    comparator = tfdv.get_feature(schema, "distance").drift_comparator.jensen_shannon_divergence
    comparator.threshold = 0.1
    comparator.source.type = schema_pb2.HistogramSelection.Type.Value(source)
    found = tfdv.validate_statistics(new, schema, previous_statistics=old)
    [info] = found.drift_skew_info
    return info.drift_measurements[0].value, bool(found.anomaly_info)


def with_unknown(distances):
    return np.append(distances, 65_535)


results = {
    "unchanged": drift(before, unchanged),
    "halved": drift(before, after),
    "halved, one unknown": drift(with_unknown(before), with_unknown(after)),
    "halved, one unknown, quantiles": drift(with_unknown(before), with_unknown(after), "QUANTILES"),
}
for name, (divergence, refused) in results.items():
    print(f"{name}: divergence {divergence:.3f}, {refused=}")
assert results["unchanged"][0] < 0.05
assert results["halved"][0] > 0.95 and results["halved"][1]
assert results["halved, one unknown"][0] < 0.05 and not results["halved, one unknown"][1]
assert results["halved, one unknown, quantiles"][0] > 0.8
PYTHON

#!/bin/bash
# TensorFlow Data Validation 1.16.1: the counts of the most frequent values, exact up to 1,000
# different values, are too high beyond, even of the values in the first places, and nothing marks
# them as estimates. Of 60,000 texts of 1,500 values, about three in four of the 1,000 counts in
# `rank_histogram` are wrong. `unique` and the number of examples stay exact. Label counts read from
# the statistics, and drift computed from them, meet this as soon as there are 1,001 classes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet uv==0.13.9
"$folder/venv/bin/uv" pip install --quiet --python "$folder/venv/bin/python" tensorflow-data-validation==1.16.1 apache-beam==2.72.0 dill==0.4.1
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" -W ignore - <<'PYTHON'
import collections

import numpy as np
import pandas as pd
import tensorflow_data_validation as tfdv

print("TensorFlow Data Validation", tfdv.__version__)
wrong = {}
for classes in (1000, 1500):
    weights = 1 / np.arange(1, classes + 1) ** 0.5
    numbers = np.random.default_rng(0).choice(classes, 60_000, p=weights / weights.sum())
    texts = [f"c{number:05d}" for number in numbers]
    statistics = tfdv.generate_statistics_from_dataframe(pd.DataFrame({"label": texts}))
    found, counts = statistics.datasets[0].features[0].string_stats, collections.Counter(texts)
    buckets = found.rank_histogram.buckets
    errors = [bucket.sample_count - counts[bucket.label] for bucket in buckets]
    wrong[classes] = sum(map(bool, errors))
    print(
        f"{classes} values, {found.unique} found: {wrong[classes]} of {len(buckets)} counts are "
        f"wrong, by {min(errors):.0f} to {max(errors):.0f}"
    )
raise SystemExit(wrong[1000] > 0 or wrong[1500] < 500)
PYTHON

#!/bin/bash
# TensorFlow 2.16.2: a loop over a tf.data.Dataset often ends only at the next turn of autotuning,
# although the last element has been read. The pauses between its turns double, from 10 ms up to a
# minute, so a loop of 12 seconds may take 20. The iterator's destructor waits for the tuning
# thread, which does not always notice that it is to end. On busy cores, as in a training, a tenth
# to a half of the loops are slow, on idle ones hardly any, with nothing in the dataset to tune;
# without `Options.autotune.enabled` none is. Whoever trains fold by fold pays it again and again.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet uv==0.13.9
"$folder/venv/bin/uv" pip install --quiet --python "$folder/venv/bin/python" tensorflow-cpu==2.16.2 numpy==1.26.4
cat >"$folder/loops.py" <<'PYTHON'
import time

import tensorflow as tf

print("TensorFlow", tf.__version__)
# The tuner's turns are 10, 30, 70, 150 and 310 ms after the start; reading takes 180 ms.
ELEMENTS, PAUSE, SLOW, LOOPS = 9, 0.02, 0.07, 600


def seconds_after_last(tuned):
    options = tf.data.Options()
    options.autotune.enabled = tuned
    numbers = tf.data.Dataset.range(ELEMENTS).map(lambda x: x + 1, num_parallel_calls=2)
    for _ in numbers.prefetch(1).with_options(options).as_numpy_iterator():
        time.sleep(PAUSE)
        last = time.perf_counter()
    return time.perf_counter() - last


longest = {}
for name, tuned in (("autotune", True), ("no autotune", False)):
    times = []
    while len(times) < LOOPS and sum(seconds > SLOW for seconds in times) < 3:
        times.append(seconds_after_last(tuned))
    longest[name] = max(times)
    slow = sum(seconds > SLOW for seconds in times)
    print(f"{name}: {slow} of {len(times)} loops end late, the latest after {longest[name]:.2f} s")
assert longest["autotune"] > SLOW > longest["no autotune"]
PYTHON
for _ in $(seq "$(nproc)"); do nice timeout 300 bash -c 'while :; do :; done' & done
trap 'kill $(jobs -p); rm -rf "$folder"' EXIT
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" -W ignore "$folder/loops.py"

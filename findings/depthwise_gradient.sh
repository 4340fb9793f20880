#!/bin/bash
# TensorFlow 2.16.2 (oneDNN on x86-64): the gradient of a 5x5 depthwise convolution by its filter
# costs far more than its 25 products a pixel: six times the gradient of a 3x3 one, or more,
# instead of 2.8 times. oneDNN has a kernel for depthwise gradients ("jit_dw"), and takes it for 3x3
# but not for 5x5, which a general one computes. Four overlapping 3x3 gradients hold the same numbers
# and need less time than the one of 5x5. Training EfficientNet and MobileNetV3 on a CPU pays it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet uv==0.13.9
"$folder/venv/bin/uv" pip install --quiet --python "$folder/venv/bin/python" tensorflow-cpu==2.16.2 numpy==1.26.4
cat >"$folder/gradient.py" <<'PYTHON'
import time

import tensorflow as tf

print("TensorFlow", tf.__version__)
SIDE, CHANNELS = 7, 1152
images = tf.random.stateless_normal([32, SIDE, SIDE, CHANNELS], [0, 1])
upstream = tf.random.stateless_normal([32, SIDE, SIDE, CHANNELS], [0, 2])


def gradient(images, side, padding):
    return tf.nn.depthwise_conv2d_backprop_filter(
        images, [side, side, CHANNELS, 1], upstream, [1, 1, 1, 1], padding
    )


@tf.function
def three(images):
    return gradient(images, 3, "SAME")


@tf.function
def five(images):
    return gradient(images, 5, "SAME")


@tf.function
def five_by_threes(images):
    padded = tf.pad(images, [[0, 0], [2, 2], [2, 2], [0, 0]])
    end = SIDE + 2
    parts = [
        [gradient(padded[:, y : y + end, x : x + end], 3, "VALID") for x in (0, 2)] for y in (0, 2)
    ]
    top, bottom = (tf.concat([left, right[:, 1:]], 1) for left, right in parts)
    return tf.concat([top, bottom[1:]], 0)


def measure(function):
    times = []
    for _ in range(12):
        started = time.perf_counter()
        function(images).numpy()
        times.append(time.perf_counter() - started)
    return min(times)


difference = tf.reduce_max(tf.abs(five(images) - five_by_threes(images)))
relative = float(difference / tf.reduce_max(tf.abs(five(images))))
times = {name: measure(f) for name, f in (("3x3", three), ("5x5", five), ("four 3x3", five_by_threes))}
print({name: f"{1000 * seconds:.1f} ms" for name, seconds in times.items()}, f"{relative:.1e}")
assert relative < 1e-4
assert times["5x5"] > 4 * times["3x3"]
assert times["5x5"] > 1.3 * times["four 3x3"]
PYTHON
ONEDNN_VERBOSE=1 TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" -W ignore "$folder/gradient.py" >"$folder/output"
grep --invert-match onednn_verbose "$folder/output"
kernels() { grep "backward_weights.*kh$1" "$folder/output" | grep --only-matching "jit[a-z0-9_]*:" | sort -u; }
echo "3x3: $(kernels 3) 5x5: $(kernels 5)"
[ "$(kernels 3)" = jit_dw: ] && [ "$(kernels 5)" = jit: ]

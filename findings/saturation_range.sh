#!/bin/bash
# Keras 3.15.1: RandomSaturation, and RandomColorJitter with it, return pixels far below
# `value_range`: down to -48,337 for images of 0 to 255, the default range. The saturation in HSV is
# between 0 and 1 whatever the range of the pixels, yet the layer clips it to `value_range`, so a
# factor above 0.5, the neutral one, can push the weaker channels below 0. Even the mild factors 0.4
# to 0.6 leave 6% of the values of a noise image outside. Images of 0 to 1 with `value_range=(0, 1)`
# come out right, and the contrast and hue layers keep to either range. Nothing is reported, and
# training goes on.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet uv==0.13.9
"$folder/venv/bin/uv" pip install --quiet --python "$folder/venv/bin/python" tensorflow-cpu==2.21.0 keras==3.15.1 numpy==2.4.6
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" -W ignore - <<'PYTHON'
import keras
import numpy as np

print("Keras", keras.__version__)
images = np.random.default_rng(0).integers(0, 256, (64, 32, 32, 3)).astype("float32")
layers = keras.layers
lowest = {}
for name, layer, options in (
    ("mild", layers.RandomSaturation, {"factor": (0.4, 0.6)}),
    ("full", layers.RandomSaturation, {"factor": (0, 1)}),
    ("jitter", layers.RandomColorJitter, {"saturation_factor": (0, 1)}),
    ("contrast", layers.RandomContrast, {"factor": 0.5}),
    ("hue", layers.RandomHue, {"factor": 0.5}),
):
    for high in (255, 1):
        augment = layer(**options, value_range=(0, high), seed=1)
        found = np.asarray(augment(images / (255 / high), training=True))
        lowest[name, high] = float(found.min())
        outside = ((found < -1e-4) | (found > high + 1e-3)).mean()
        print(f"{name}, 0 to {high}: {found.min():.0f} to {found.max():.0f}, {outside:.1%} outside")
default = layers.RandomSaturation(factor=(0.8, 0.8))
pixel = np.asarray(default(np.array([[[[200, 100, 50]]]], "float32"), training=True))
print("200, 100, 50 with the defaults and factor 0.8:", pixel.round().ravel().tolist())
assert lowest["mild", 255] < -50
assert lowest["full", 255] < -1000 and lowest["jitter", 255] < -1000
assert min(value for (name, high), value in lowest.items() if high == 1) > -1e-4
assert lowest["contrast", 255] >= 0 and lowest["hue", 255] >= -1e-3
assert pixel.min() < -300
PYTHON

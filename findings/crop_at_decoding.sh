#!/bin/bash
# TensorFlow 2.21.0: tf.io.decode_and_crop_jpeg is not "equivalent to a combination of decode and
# crop", as its documentation has it. In a JPEG with subsampled chroma, which is what most cameras
# and tf.io.encode_jpeg write, the first or last column of a crop differs from the same column of
# the whole image: the smooth ("fancy") upscaling of chroma, which is on by default, has no
# neighbour beyond the edge of what it decodes. Seen: 106 of 200 crops of a smooth image, by up to
# 13 of 255, in the outermost columns only. Without subsampling or without fancy upscaling all
# 200 are equal. A test that compares crops byte for byte, or a cache of decoded images beside a
# reader that crops while decoding, meets this.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tensorflow-cpu==2.21.0 numpy==1.26.4
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import tensorflow as tf

print("TensorFlow", tf.__version__)
colors = np.random.default_rng(1).integers(0, 256, (16, 16, 3), dtype=np.uint8)
image = tf.clip_by_value(tf.image.resize(colors, (256, 256), "bicubic"), 0, 255)
image = tf.cast(image, tf.uint8)

differing = {}
for subsampled in (True, False):
    jpeg = tf.io.encode_jpeg(image, quality=95, chroma_downsampling=subsampled)
    for fancy in (True, False):
        options = {"channels": 3, "fancy_upscaling": fancy}
        whole = tf.io.decode_jpeg(jpeg, **options).numpy().astype(int)
        crops, most, inside = 0, 0, False
        for left in range(100):
            for width in (100, 101):
                window = [40, left, 60, width]
                crop = tf.io.decode_and_crop_jpeg(jpeg, window, **options).numpy()
                difference = np.abs(crop - whole[40:100, left : left + width])
                crops += bool(difference.any())
                most = max(most, int(difference.max()))
                inside |= bool(difference[:, 1:-1].any())
        differing[subsampled, fancy] = crops
        print(f"{subsampled=} {fancy=}: {crops} of 200 crops differ, by up to {most}; {inside=}")
        assert not inside
assert differing.pop((True, True)) > 50
assert not any(differing.values())
PYTHON

"""Measures images for the log as training has measured its own."""

from typing import Any

import numpy as np

from components.images.check import check_image, count_pixels
from components.images.jpeg_frame import START
from components.images.options import ImageOptions, TransformConfig
from components.images.pixel_statistics import measure_pixels
from pipeline_def.local.pushed_model import find_run
from pipeline_def.local.server.answer_log import Measure

# Decoders of other formats hold the interpreter lock, for which small requests would wait.
_MOST_PIXELS = 1_000_000
_FIELDS = ("shrink", "quality", "transcode", "color")


def find_measure(output: str, version: str) -> Measure:
    """Return what measures files for a version, with the options of the run that pushed it.

    Without a record of the run there are only sizes and luminance.
    """
    run = find_run(output, version)
    recorded = run.record.configuration if run else {}
    ingest = recorded.get("ingest", {})
    options = ImageOptions(**{name: ingest[name] for name in _FIELDS if name in ingest})
    see = _make_see(TransformConfig(**recorded["transform"])) if "transform" in recorded else None

    def measure(file: bytes) -> dict[str, float]:
        if not file.startswith(START) and count_pixels(file, options) > _MOST_PIXELS:
            return {}
        checked = check_image(file, options)
        found: dict[str, float] = {
            "file_size": len(file),
            "height": checked.height,
            "width": checked.width,
        }
        if checked.luminance is not None:
            found["luminance"] = checked.luminance
        if see is not None:
            pixels = measure_pixels(see(np.array([checked.encoded], object)).numpy())
            found |= {name: float(column[0]) for name, column in pixels.items()}
        return found

    return measure


def _make_see(config: TransformConfig) -> Any:
    """Return a function of string [1] → the pixels that the model sees, uint8."""
    import tensorflow as tf

    from components.images.canonical import canonicalize, decode

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def see(encoded: tf.Tensor) -> tf.Tensor:
        return decode(canonicalize(encoded, config), config)

    return see

"""The files that training leaves: its history in `model_run`, and exports in other formats."""

from typing import Literal

HISTORY_FILE = "history.json"
"""Metric → its value in every epoch."""

INPUT_FILE = "input.json"
"""How the input kept up: `images_per_second`, `input_wait_fraction`, `cache` and `advice`."""

TRAINING_FILE = "training.json"
"""`started`, ISO 8601 in UTC; `seconds`; `config`: section → field → value, as given; `phases`, a
list of `name`, train, head or fine_tune; `epochs`, `seconds`, `metric`; `best_epoch` from 1 on, or
0, and `best`, the metric in it; `diverged`; `on_features`, whether it read features instead of
images; `exported`, the name of the phase whose weights were exported; `temperature`, the divisor of
the logits; `known`, null or absent or the fields of `components.metrics.score_metrics.Unknowns`;
`folds`, null or, after cross-validation, their `count`, and of each the epoch at which it was
judged and its seconds; `search`, null or `minutes`, `folds`, the number of the `chosen` trial,
`text` that says why, `measure`, the metric of all scores, `options` that were searched, and
`trials`, the fields of `components.tuner.trials.Trial`."""

SEARCH_FILE = "search.json"
"""In Tuner's `tuner_run`: `search` of `TRAINING_FILE`, and all options and a digest of the `images`
with which the chosen trial was trained."""

BEST_FILE = "best.yaml"
"""The options of the chosen trial of a search, as a configuration file."""

CHOSEN_FOLDER = "checkpoints"
"""The checkpoints of the chosen trial, from which Trainer goes on."""

MODEL_FILE = "model.json"
"""`parameters`, the number of the network's weights; `bytes` of all files of the SavedModel."""

EXAMPLES_SIGNATURE = "serving_examples"
"""Signature of the SavedModel that takes serialized examples, as the Evaluator does."""

KNOWN, KNOWN_SCORE = "known", "known_score"
"""Optional outputs of `serving_default`: whether an image is like those of training, and the score
that decides it, the higher the more alike."""

WEIGHTS_FILE = "backbone.npz"
"""Weights of the trained network without its last layer, from which a later training can start."""

NETWORK_FILE = "assets.extra/network.json"
"""In a SavedModel: what the images that judged the training have `picked`, the checkpoint, the
training, or nothing."""

FOLDS_FILE = "assets.extra/fold_predictions.parquet"
"""In a SavedModel that was trained on all images: for each image, the probabilities by a model that
has not seen it (`components.metrics.fold_predictions`)."""

LEARNED_FILE = "assets.extra/learned.npy"
"""In a SavedModel that was trained on the train split: the last 8 bytes of the SHA-256 of each of
its images, uint64 [images]."""

LEARNING_RATE = "learning_rate"
"""Metric of the history: learning rate of the last training step of an epoch."""

PHASE = "phase"
"""Number of the phase, from 1, of an epoch of the history; not a metric."""

RATE = "images_per_second"
"""Metric of the history: training images of an epoch divided by the time of its training steps."""

INPUT_WAIT_FRACTION = "input_wait_fraction"
"""Metric of the history: fraction of the time of an epoch's steps spent waiting for input."""

ExportFormat = Literal["onnx", "float16", "dynamic", "int8"]
"""onnx: float32, with the preparation of images of any size. The others are for LiteRT. float16:
2-byte weights. dynamic: 1-byte weights, float32 or int8 arithmetic, as the operation supports.
int8: weights and activations, whose ranges are measured."""

ONNX: ExportFormat = "onnx"

FORMATS_FOLDER = "Format-Exports"
"""Folder of the other formats in the model artifact, next to TFX's folder of the SavedModel."""

MANIFEST_FILE = "formats.json"
"""Describes the exports: `ingest`, how to shrink an image first, `form`, how to resize it then,
`labels`, and `kinds`, the formats, with those that `failed`; `known_threshold`, null
or the least `known_score` of a known image; `golden`, a list of `input` and `seen`, names of PNG
files, and `probabilities`."""

LABELS_FILE = "labels.txt"
"""The label of each output column, one per line."""

GOLDEN_FOLDER = "golden"
"""Folder in `FORMATS_FOLDER` of images whose preparation and probabilities are known."""

FORMATS_PROPERTY = "formats"
"""Property of the blessing: the formats that may be pushed, separated by commas."""

PUSHED_CARD = "MODEL_CARD.md"
"""The card of a pushed model, beside `saved_model.pb`."""

PUSHED_FORMATS = "formats"
"""Folder of the other formats in a pushed model."""


def format_file(kind: str) -> str:
    """Return the file name of an export."""
    return "model.onnx" if kind == ONNX else f"{kind}.tflite"

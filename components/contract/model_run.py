"""The files that training leaves in Trainer's `model_run`, next to its TensorBoard logs."""

HISTORY_FILE = "history.json"
"""Metric → its value in every epoch."""

INPUT_FILE = "input.json"
"""How reading kept up: the fields of `pipeline_def.training.input_report.InputReport`."""

TRAINING_FILE = "training.json"
"""`started`, ISO 8601 in UTC; `seconds`; `config`: section → field → value, as it was given;
`phases`, a list of `name`, `epochs`, `seconds`, `metric` and `best`, its value in the best epoch;
`exported`, the name of the phase whose weights were exported; `calibration`, null or the fields of
`pipeline_def.training.calibration.Calibration`."""

MODEL_FILE = "model.json"
"""What was exported: `parameters`, the number of the network's weights; `bytes` of all files of the
SavedModel."""

WEIGHTS_FILE = "backbone.weights.h5"
"""Weights of the trained network without its last layer, from which a later training can start."""

LEARNING_RATE = "learning_rate"
"""Metric of the history: learning rate of the last step of an epoch."""

PHASE = "phase"
"""Number of the phase, from 1 on, that an epoch of the history belongs to; not a metric."""

RATE = "images_per_second"
"""Metric of the history: images that an epoch was trained on, over the time of its steps."""

INPUT_WAIT_FRACTION = "input_wait_fraction"
"""Metric of the history: fraction of the time of an epoch's steps spent waiting for input."""

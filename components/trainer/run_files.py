"""The files that Trainer writes to its artifact `model_run`."""

import dataclasses
import datetime
import logging
import os
import statistics
import time
from typing import Any

from components.contract.configuration import to_dict
from components.contract.model_files import (
    HISTORY_FILE,
    INPUT_FILE,
    INPUT_WAIT_FRACTION,
    MODEL_FILE,
    RATE,
    TRAINING_FILE,
)
from components.contract.rules_of_thumb import LONGEST_INPUT_WAIT
from components.host.machine import available_memory, fits_in_memory, gib
from components.metrics.score_metrics import Unknowns
from components.storage.folder import write_json
from components.storage.folder_listing import find_files
from components.trainer.export.signatures import Classifier
from components.trainer.input.cache import pixel_bytes
from components.trainer.loop.train import Phase, Training
from components.trainer.training_input import TrainingInput

_LOGGER = logging.getLogger(__name__)


def describe_training(
    training: Training,
    temperature: float,
    unknowns: Unknowns | None = None,
    *,
    started: float,
    directory: str,
    folds: dict[str, Any] | None = None,
    search: dict[str, Any] | None = None,
) -> None:
    """Write history, input and facts of a training that began at the time `started`."""
    data = training.data
    description: dict[str, Any] = {
        "started": datetime.datetime.fromtimestamp(int(started), datetime.UTC).isoformat(),
        "seconds": time.time() - started,
        "config": {n: v for n, v in to_dict(data.config).items() if isinstance(v, dict)},
        "phases": [_describe_phase(phase) for phase in training.phases],
        "exported": training.exported,
        "temperature": temperature,
        "known": unknowns and dataclasses.asdict(unknowns),
        "folds": folds,
        "search": search,
    }
    write_json(os.path.join(directory, HISTORY_FILE), training.history)
    write_json(os.path.join(directory, INPUT_FILE), describe_input(training.phases[-1], data))
    write_json(os.path.join(directory, TRAINING_FILE), description)


def _describe_phase(phase: Phase) -> dict[str, Any]:
    done = phase.progress
    return {
        "name": phase.name,
        "epochs": done.epochs,
        "seconds": phase.seconds,
        "metric": done.watched,
        "best_epoch": done.best_epoch,
        "best": done.best,
        "diverged": done.diverged,
        "on_features": phase.on_features,
    }


def describe_input(phase: Phase, data: TrainingInput) -> dict[str, Any]:
    """Return how the input pipeline kept up with the last phase, and log advice if it did not.

    That is medians of `images_per_second` and `input_wait_fraction`, without the first epoch if
    there are others; `cache`; and `advice`, None unless the fraction is too large.
    Features in memory tell nothing about the input.
    """
    options, history = data.config.input, phase.progress.history
    rate, waited = (
        statistics.median(history[name][1:] or history[name])
        for name in (RATE, INPUT_WAIT_FRACTION)
    )
    too_long = waited > LONGEST_INPUT_WAIT and not phase.on_features
    advice = _advise(data) if too_long else None
    if advice:
        _LOGGER.warning("Training waited for input %.0f %% of the time: %s", waited * 100, advice)
    return {RATE: rate, INPUT_WAIT_FRACTION: waited, "cache": options.cache, "advice": advice}


def _advise(data: TrainingInput) -> str:
    storage, pixels = data.config.transform.storage, pixel_bytes(data.train, data.config.transform)
    if data.config.input.cache in ("decoded", "file"):
        change = "pixels are cached already; a larger model or batch would use the time"
    elif fits_in_memory(pixels, available_memory()):
        change = f"set input.cache to decoded, which takes {gib(pixels)} of memory"
    elif not data.train.local:
        change = "read from a local disk, or set input.cache to file"
    elif storage != "raw":
        change = f"set input.cache to file or transform.storage to raw; either takes {gib(pixels)}"
    else:
        change = "put the shards on a faster disk"
    return f"{change}. `uv run -m benchmarks.input_pipeline --data DIR` measures what helps."


def describe_model(classifier: Classifier, saved_model: str, directory: str) -> None:
    """Write the number of parameters, and the size of the SavedModel in bytes."""
    size = sum(file.size for file in find_files(saved_model))
    parameters = sum(variable.shape.num_elements() for variable in classifier.model.variables)
    write_json(os.path.join(directory, MODEL_FILE), {"parameters": parameters, "bytes": size})

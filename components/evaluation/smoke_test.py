"""The smoke test: the exported model, in a fresh process, must predict as in the evaluation.

TFX's InfraValidator does this with a server in a container, which neither a laptop nor a step on
Kubeflow can start. It is part of the Evaluator because the probabilities to compare with and the
verdict are there, and the process can run during the evaluation.
"""

import base64
import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from components.evaluation import fresh_process
from components.metrics.predictions import Evaluated

_IMAGES, _PREDICTIONS, _LOG = "images.json", "predictions.json", "log"

# The process runs on the CPU. A GPU rounds factors to 10 bits (TensorFloat-32); other weights,
# labels or pixels differ by far more.
_TOLERANCE = 0.02
# Bytes; the process writes far less.
_LEAST_SPACE = 2**20


class SmokeTest:
    """A process that predicts images; a context manager that ends it."""

    def __init__(self, model: str, images: Mapping[str, bytes], *, seconds: float) -> None:
        """Start a process that predicts `images`, file name → image file; there may be none."""
        self._names = list(images)
        self._seconds = seconds
        self._started = time.monotonic()
        self._folder = tempfile.TemporaryDirectory(prefix="smoke-test-")
        texts = [base64.b64encode(data).decode() for data in images.values()]
        self._path(_IMAGES).write_text(json.dumps(texts), encoding="utf-8")
        self._process = _start(model, Path(self._folder.name)) if images else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        """Kill the process if it is still running."""
        if self._process:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    def find_failure(self, read: Callable[[Sequence[str]], Evaluated]) -> str:
        """Wait for the predictions; return what is wrong with them, as a clause, or ""."""
        if self._process is None:
            return ""
        passed = time.monotonic() - self._started
        try:
            # A busy machine, on which the evaluation took long, is not the fault of the model.
            status = self._process.wait(max(self._seconds - passed, passed))
        except subprocess.TimeoutExpired:
            return f"the exported model made no predictions within {self._seconds:g} s"
        if status:
            if shutil.disk_usage(self._folder.name).free < _LEAST_SPACE:
                # It could not even log that.
                path = str(self._path(_PREDICTIONS))
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            lines = self._path(_LOG).read_text(encoding="utf-8", errors="replace").splitlines()
            last = next((line.strip() for line in reversed(lines) if line.strip()), "it was killed")
            return f"the exported model cannot be loaded and run: {last}"
        predicted = json.loads(self._path(_PREDICTIONS).read_text(encoding="utf-8"))
        return explain_difference(predicted, self._names, read(self._names))

    def _path(self, name: str) -> Path:
        return Path(self._folder.name, name)


def _start(model: str, folder: Path) -> subprocess.Popen[bytes]:
    paths = [model, *(str(folder / name) for name in (_IMAGES, _PREDICTIONS))]
    # The Evaluator may hold all GPU memory.
    quiet = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    with (folder / _LOG).open("wb") as log:
        return subprocess.Popen(
            [sys.executable, str(fresh_process.__file__), *paths],
            env={**os.environ, **quiet},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def explain_difference(predicted: Mapping[str, Any], names: list[str], evaluated: Evaluated) -> str:
    """Say how predictions differ from those of the evaluation; "" if they do not."""
    expected = evaluated.candidate
    if tuple(predicted["labels"]) != expected.labels:
        return "the exported model has other labels than in the evaluation"
    rows = {name: row for row, name in enumerate(evaluated.filenames)}
    known = expected.probabilities[[rows[name] for name in names]]
    answered = np.array(predicted["probabilities"], np.float64)
    if answered.shape != known.shape:
        return f"the exported model made {len(answered)} predictions for {len(known)} images"
    distance = np.abs(answered - known).max(axis=1)
    # NaN is wrong, too.
    wrong = [name for name, far in zip(names, distance, strict=True) if not far <= _TOLERANCE]
    if not wrong:
        return ""
    return (
        f"the exported model's predictions for {len(wrong)} of {len(names)} images differ from the "
        f"evaluation, such as for {wrong[0]}: a probability is off by {distance.max():.3f}"
    )

"""The smoke test: the exported model, in a fresh process, answers images as it was evaluated.

TFX's InfraValidator does this with a server in a container, which neither a laptop nor a step on
Kubeflow can start. It is a part of the Evaluator, no step of its own: the probabilities to compare
with are here, its verdict is what keeps a model from being pushed and what the report explains, and
the process runs while the model is asked about all images.
"""

from __future__ import annotations

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
from types import TracebackType
from typing import Any

import numpy as np

from components.evaluation.metrics.predictions import Evaluated
from components.evaluation.smoke import fresh_process

_IMAGES, _ANSWERS, _LOG = "images.json", "answers.json", "log"

# The process computes on CPUs. A GPU rounds factors to 10 bits (TensorFloat-32); other weights,
# other labels or other pixels differ by far more.
_TOLERANCE = 0.02
# Bytes; what the process writes is far smaller.
_LEAST_SPACE = 2**20


class SmokeTest:
    """A process that answers images; end it with the block."""

    def __init__(self, model: str, images: Mapping[str, bytes], *, seconds: float) -> None:
        """Start the process.

        Args:
            model: folder of the SavedModel.
            images: file name → image file, as examples have them. Of none nothing is tested.
            seconds: after which it has failed.
        """
        self._names = list(images)
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._folder = tempfile.TemporaryDirectory(prefix="smoke-test-")
        texts = [base64.b64encode(data).decode() for data in images.values()]
        self._path(_IMAGES).write_text(json.dumps(texts), encoding="utf-8")
        self._process = _start(model, Path(self._folder.name)) if images else None

    def __enter__(self) -> SmokeTest:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Kill the process if it still runs."""
        if self._process:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    def find_failure(self, read: Callable[[Sequence[str]], Evaluated]) -> str:
        """Wait for the answers; return what is wrong with them, in a clause, or "".

        Args:
            read: returns what the Evaluator has got from the model for images of these names.
        """
        if self._process is None:
            return ""
        try:
            status = self._process.wait(max(0.0, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return f"in a process of its own it gave no answer within {self._seconds:g} s"
        if status:
            self._check_space()
            return f"in a process of its own it does not load and answer: {self._last_line()}"
        answers = json.loads(self._path(_ANSWERS).read_text(encoding="utf-8"))
        return compare(answers, self._names, read(self._names))

    def _check_space(self) -> None:
        """Raise an error if it may be the disk that is to blame, which says nothing of the model.

        The process cannot even log that, as its log lies there, too.
        """
        if shutil.disk_usage(self._folder.name).free < _LEAST_SPACE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path(_ANSWERS)))

    def _last_line(self) -> str:
        lines = self._path(_LOG).read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "it was killed")

    def _path(self, name: str) -> Path:
        return Path(self._folder.name, name)


def _start(model: str, folder: Path) -> subprocess.Popen[bytes]:
    paths = [model, *(str(folder / name) for name in (_IMAGES, _ANSWERS))]
    # The Evaluator may hold all memory of the GPU.
    quiet = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    with (folder / _LOG).open("wb") as log:
        return subprocess.Popen(
            [sys.executable, str(fresh_process.__file__), *paths],
            env={**os.environ, **quiet},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def compare(answers: Mapping[str, Any], names: list[str], evaluated: Evaluated) -> str:
    """Say how answers differ from those of the evaluation; "" if they do not.

    Args:
        answers: `labels`, [classes], and `probabilities`, [images, classes].
        names: of the images.
        evaluated: of the same images and others.
    """
    expected = evaluated.candidate
    if tuple(answers["labels"]) != expected.labels:
        return "in a process of its own it has other labels than in the evaluation"
    rows = {name: row for row, name in enumerate(evaluated.filenames)}
    known = expected.probabilities[[rows[name] for name in names]]
    found = np.array(answers["probabilities"], np.float64)
    if found.shape != known.shape:
        return f"in a process of its own it gave {len(found)} answers to {len(known)} images"
    distance = np.abs(found - known).max(axis=1)
    # Not a number is no answer either.
    wrong = [name for name, far in zip(names, distance, strict=True) if not far <= _TOLERANCE]
    if not wrong:
        return ""
    return (
        f"in a process of its own it answers {len(wrong)} of {len(names)} images otherwise than in "
        f"the evaluation, such as {wrong[0]}: a probability is off by {distance.max():.3f}"
    )

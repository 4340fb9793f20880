"""Report progress as log records; runners decide how to show them."""

import collections
import contextlib
import logging
import math
from collections.abc import Iterator, Mapping

from components.contract.model_files import INPUT_WAIT_FRACTION, RATE

LOGGER = logging.getLogger("image_pipeline.progress")

# A log record per image would cost more than some images.
_REPORT_EVERY = 64
# Shorter waits for input, as a fraction of the training steps' time, are not shown.
_WAIT_SHOWN = 0.1

_done: collections.Counter[str] = collections.Counter()
_folds: list[str] = []


def report_progress(*, done: float, total: float, unit: str, note: str = "") -> None:
    """Log that `done` of `total` `unit`s are finished; a runner may draw a bar.

    The record's `progress` attribute is `(done, total)`, so that no text needs parsing; the log of
    a Kubeflow step shows the line itself. `done` may be fractional, such as 2.5 epochs.
    """
    text = f"{math.floor(done):,} of {total:,.0f} {unit}" + (f", {note}" if note else "")
    text = " ".join((*_folds, text))
    LOGGER.info(text, extra={"progress": (done, total)})


def report_epoch(values: Mapping[str, float], *, epoch: int, epochs: int, name: str = "") -> None:
    """Log the end of an epoch in a short line that a runner may leave on the screen.

    Epochs count from 1; a phase without epochs has a name. Unlike `report_progress`, the record's
    `lasting` attribute is true. Examples: `12/60 acc .947 val .972 1,751/s`, `head acc .941 …`.
    """
    text = f"{name or f'{epoch:>{len(str(epochs))}}/{epochs}'} acc {_short(values['accuracy'])}"
    # Training on all images has none to evaluate on.
    if not math.isnan(values["val_accuracy"]):
        text += f" val {_short(values['val_accuracy'])}"
    text += f" {values[RATE]:,.0f}/s"
    if values[INPUT_WAIT_FRACTION] > _WAIT_SHOWN:
        text += f" wait {values[INPUT_WAIT_FRACTION]:.0%}"
    text = " ".join((*_folds, text))
    LOGGER.info(text, extra={"progress": (epoch, epochs), "lasting": not _folds})


@contextlib.contextmanager
def naming_fold(name: str) -> Iterator[None]:
    """Put `name` before the epochs that are reported in the context; none of them is lasting."""
    _folds.append(name)
    try:
        yield
    finally:
        _folds.pop()


def report_result(text: str) -> None:
    """Log a short line that a runner may leave on the screen."""
    LOGGER.info(text, extra={"progress": (1, 1), "lasting": True})


def add_progress(task: str, amount: int, *, total: int, unit: str) -> None:
    """Add `amount` finished `unit`s of `task`; report the sum at every 64 and at the end.

    Counts all threads of this process; a distributed Beam runner has several processes. `task` is
    any unique text, such as the output folder; once finished, it counts from zero again.
    """
    before = _done[task] if _done[task] < total else 0
    done = _done[task] = before + amount
    if done // _REPORT_EVERY > before // _REPORT_EVERY or done == total:
        report_progress(done=done, total=total, unit=unit)


def _short(fraction: float) -> str:
    """Format a fraction in four characters: .947 or 1.00."""
    text = f"{fraction:.3f}"
    return text[1:] if text.startswith("0") else text[:4]

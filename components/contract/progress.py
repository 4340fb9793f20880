"""Progress of long work, as log records: components report, runners decide how to show it."""

import collections
import logging
import math
from collections.abc import Mapping

from components.contract.model_files import INPUT_WAIT_FRACTION, RATE

LOGGER = logging.getLogger("image_pipeline.progress")

# A record of the log for each image would cost more than some images do.
_REPORT_EVERY = 64
# Fraction of the time of steps; less of it spent waiting for input is not worth a word.
_WAIT_SHOWN = 0.1

_done: collections.Counter[str] = collections.Counter()


def report_progress(*, done: float, total: float, unit: str, note: str = "") -> None:
    """Log that `done` of `total` `unit`s are finished; a runner may draw it as a bar.

    The numbers travel in the record's `progress` attribute as `(done, total)`, so that no
    text needs parsing; on Kubeflow the line itself is what the step's log shows.

    Args:
        done: may have a fraction, such as epochs when one of them is half over.
        total: of the work.
        unit: what is counted, in the plural.
        note: what else there is to say.
    """
    text = f"{math.floor(done):,} of {total:,.0f} {unit}" + (f", {note}" if note else "")
    LOGGER.info(text, extra={"progress": (done, total)})


def report_epoch(values: Mapping[str, float], *, epoch: int, epochs: int) -> None:
    """Log the end of an epoch in a short line that a runner may leave on the screen.

    As `report_progress`, with a true `lasting` attribute: `12/60 acc .947 val .972 1,751/s`.

    Args:
        values: metrics of the epoch: `accuracy`, `val_accuracy`, and how fast it was.
        epoch: that is over, from 1 on.
        epochs: largest number of them.
    """
    train, evaluation = (_short(values[name]) for name in ("accuracy", "val_accuracy"))
    number = f"{epoch:>{len(str(epochs))}}/{epochs}"
    text = f"{number} acc {train} val {evaluation} {values[RATE]:,.0f}/s"
    if values[INPUT_WAIT_FRACTION] > _WAIT_SHOWN:
        text += f" wait {values[INPUT_WAIT_FRACTION]:.0%}"
    LOGGER.info(text, extra={"progress": (epoch, epochs), "lasting": True})


def add_progress(task: str, amount: int, *, total: int, unit: str) -> None:
    """Count `amount` more finished `unit`s of `task`; report the sum at every 64 and at the end.

    Counts what this process has done, by all its threads; a distributed Beam runner has several
    processes. `task` is any text of its own, such as the folder that is written to.
    """
    before = _done[task]
    done = _done[task] = before + amount
    if done // _REPORT_EVERY > before // _REPORT_EVERY or done == total:
        report_progress(done=done, total=total, unit=unit)


def _short(fraction: float) -> str:
    """Say a fraction in four characters: .947, or 1.00."""
    text = f"{fraction:.3f}"
    return text[1:] if text.startswith("0") else text[:4]

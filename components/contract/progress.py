"""Progress of long work, as log records: components report, runners decide how to show it."""

import collections
import logging

LOGGER = logging.getLogger("image_pipeline.progress")

# A record of the log for each image would cost more than some images do.
_REPORT_EVERY = 64

_done: collections.Counter[str] = collections.Counter()


def report_progress(*, done: float, total: float, unit: str, note: str = "") -> None:
    """Log that `done` of `total` `unit`s are finished; a runner may draw it as a bar.

    The numbers travel in the record's `progress` attribute as `(done, total)`, so that no
    text needs parsing; on Kubeflow the line itself is what the step's log shows.
    """
    text = f"{done:,.0f} of {total:,.0f} {unit}" + (f", {note}" if note else "")
    LOGGER.info(text, extra={"progress": (done, total)})


def add_progress(task: str, amount: int, *, total: int, unit: str) -> None:
    """Count `amount` more finished `unit`s of `task`; report the sum at every 64 and at the end.

    Counts what this process has done, by all its threads; a distributed Beam runner has several
    processes. `task` is any text of its own, such as the folder that is written to.
    """
    before = _done[task]
    done = _done[task] = before + amount
    if done // _REPORT_EVERY > before // _REPORT_EVERY or done == total:
        report_progress(done=done, total=total, unit=unit)

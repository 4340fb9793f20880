"""Progress of long work, as log records: components report, runners decide how to show it."""

import logging

LOGGER = logging.getLogger("image_pipeline.progress")


def report_progress(*, done: float, total: float, unit: str, note: str = "") -> None:
    """Log that `done` of `total` `unit`s are finished; a runner may draw it as a bar.

    The numbers travel in the record's `progress` attribute as `(done, total)`, so that no
    text needs parsing; on Kubeflow the line itself is what the step's log shows.
    """
    text = f"{done:,.0f} of {total:,.0f} {unit}" + (f", {note}" if note else "")
    LOGGER.info(text, extra={"progress": (done, total)})

"""The answers of the server as lines of JSON, for libraries that look for drift."""

import json
import logging
import time
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter

from components.contract.errors import ConfigurationError
from pipeline_def.local.server.batching import Prediction

_LOGGER = logging.getLogger(__name__)


class AnswerLog:
    """Appends a line per answered image to a file; serving goes on while that fails."""

    def __init__(self, path: str, registry: CollectorRegistry) -> None:
        """Open the file once, to see that it can be written.

        Raises:
            ConfigurationError: it cannot be written.
        """
        self._path, self._is_failing = path, False
        self._lines = Counter(
            "images_log_lines", "Lines of the log: written, lost", ["result"], registry=registry
        )
        try:
            self._append("")
        except OSError as error:
            raise ConfigurationError(f"Cannot write --log {path}: {error.strerror}.") from error

    def add(self, request_id: str, version: str, rows: Sequence[Prediction]) -> None:
        """Write the answers of a request; refused images have no line."""
        lines = [_describe(request_id, version, row) for row in rows if not row.get("error")]
        # A line that failed may be cut off.
        start = "\n" if self._is_failing else ""
        try:
            self._append(start + "".join(lines))
        except OSError as error:
            self._lines.labels("lost").inc(len(lines))
            if not self._is_failing:
                _LOGGER.warning("The log fails, serving goes on: %s.", error.strerror)
            self._is_failing = True
        else:
            self._lines.labels("written").inc(len(lines))
            self._is_failing = False

    def _append(self, text: str) -> None:
        # Opened each time, so that the file may be moved or removed meanwhile.
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(text)


def _describe(request_id: str, version: str, row: Prediction) -> str:
    label, probabilities = row.get("label"), row.get("probabilities")
    fields = {
        "time": time.time(),
        "id": request_id,
        "version": version,
        "label": label.decode("utf-8", "replace") if isinstance(label, bytes) else label,
        "probability": max(probabilities) if probabilities else None,
        "known": row.get("known"),
    }
    return f"{json.dumps(fields)}\n"

"""The answers of the server, kept for `watch`: a row per image, in Parquet files of a minute each.

One thread measures, writes and prunes. Serving never waits for it, and goes on while it fails.
"""

import contextlib
import logging
import queue
import random
import re
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from prometheus_client import CollectorRegistry, Counter, Gauge

from components.contract.example import FILE_SIZE, HEIGHT, LUMINANCE, WIDTH
from components.images.pixel_statistics import STATISTICS
from components.storage.folder import explaining_errors, open_folder, reason_of, replace_file
from pipeline_def.local.server.batching import File, Picture, Prediction

ANSWERS = "answers"
"""Folder of the rows within the log, a folder per day."""
PICTURES = "pictures"
"""Folder of the kept pictures within the log, a folder per day."""

PROPERTIES = {"file_size": FILE_SIZE, "height": HEIGHT, "width": WIDTH, "luminance": LUMINANCE}
"""Column → the feature of training that it is compared with."""

Measure = Callable[[bytes], dict[str, float]]
"""Maps a file to `PROPERTIES` and `STATISTICS`; some may be missing."""

_SCHEMA = pa.schema(
    [
        ("time", pa.timestamp("us", "UTC")),
        ("version", pa.string()),
        ("label", pa.string()),
        ("probability", pa.float32()),
        ("probabilities", pa.list_(pa.float32())),
        ("known", pa.bool_()),
        ("embedding", pa.list_(pa.float32())),
        ("error", pa.string()),
        ("picture", pa.string()),
        *((name, pa.float32()) for name in (*PROPERTIES, *STATISTICS)),
    ]
)
_LOGGER = logging.getLogger(__name__)

_FLUSH_ROWS, _FLUSH_SECONDS = 1000, 60.0
# What waits for the thread: rows, and the bytes of their pictures.
_MOST_ROWS, _MOST_BYTES = 20_000, 64 * 2**20
# The thread measures for at most a fifth of the time of one core.
_REST = 4.0
_CLOSE_SECONDS = 10.0
_LISTING_SECONDS = 3600.0
_JUMP_SECONDS = 3600.0

_DAY_SECONDS = 86_400
_OWN_FILE = re.compile(rf"({ANSWERS}|{PICTURES})/(\d{{4}}-\d\d-\d\d)/[\w.-]+", re.ASCII)
_ENDINGS = {b"\xff\xd8": "jpg", b"\x89P": "png", b"GI": "gif", b"BM": "bmp", b"RI": "webp"}


@dataclass(frozen=True)
class LogLimits:
    """What the log keeps, and for how long."""

    days: int = 30
    bytes: float = 2**30
    pictures: float = 0.0
    """Share of the pictures that are kept."""


@dataclass(frozen=True)
class _Answer:
    time: float
    version: str
    prediction: Prediction
    file: bytes | None = None
    """None if it is not measured."""
    is_kept: bool = False


class AnswerLog:
    """Writes the answers to a folder or bucket."""

    def __init__(
        self,
        folder: str,
        limits: LogLimits,
        find_measure: Callable[[str], Measure],
        registry: CollectorRegistry,
    ) -> None:
        """Start the thread.

        Args:
            folder: path or URL.
            limits: what is kept, and for how long.
            find_measure: returns how to measure the images of a version.
            registry: of the metrics.
        """
        self._folder, self._limits, self._find_measure = folder, limits, find_measure
        self._rows_metric = Counter(
            "images_log_rows", "Rows of the log by result", ["result"], registry=registry
        )
        self._failing = Gauge("images_log_failing", "1 while the log fails", registry=registry)
        self._waiting: queue.SimpleQueue[_Answer | None] = queue.SimpleQueue()
        self._lock, self._held = threading.Lock(), 0
        self._rows: list[dict[str, Any]] = []
        self._files: dict[str, int] = {}
        self._list_at = self._retry_at = 0.0
        self._started = time.time() - time.monotonic()
        self._has_jumped = False
        self._closing = threading.Event()
        self._measure: tuple[str, Measure | None] = ("", None)
        self._thread = threading.Thread(target=self._work, name="log", daemon=True)
        self._thread.start()

    def add(self, version: str, files: Sequence[File], rows: Sequence[Prediction]) -> None:
        """Add the answered images of a request."""
        for file, row in zip(files, rows, strict=True):
            if self._waiting.qsize() >= _MOST_ROWS:
                self._rows_metric.labels("lost").inc()
                continue
            kept = random.random() < self._limits.pictures
            data = file.encoded if isinstance(file, Picture) and not row.get("error") else None
            if not isinstance(data, bytes) or not self._reserve(len(data)):
                data = None
            self._waiting.put(_Answer(time.time(), version, row, data, kept))

    def _reserve(self, size: int) -> bool:
        with self._lock:
            if self._held + size > _MOST_BYTES:
                return False
            self._held += size
            return True

    def close(self) -> None:
        """Write what is left, for a few seconds at most."""
        self._closing.set()
        self._waiting.put(None)
        self._thread.join(_CLOSE_SECONDS)
        if left := len(self._rows) + self._waiting.qsize():
            _LOGGER.warning("%d answers could not be written to the log.", left)

    def _work(self) -> None:
        self._attempt(self._prune)
        due = time.monotonic() + _FLUSH_SECONDS
        while True:
            answer = None
            with contextlib.suppress(queue.Empty):
                answer = self._waiting.get(timeout=max(0.0, due - time.monotonic()))
                if answer is None:
                    self._flush()
                    return
                self._rows.append(self._describe(answer))
            now = time.monotonic()
            if now >= due or (len(self._rows) >= _FLUSH_ROWS and now >= self._retry_at):
                self._flush()
                due = time.monotonic() + _FLUSH_SECONDS

    def _describe(self, answer: _Answer) -> dict[str, Any]:
        """Return the row of an answer."""
        found = answer.prediction
        scores = found.get("probabilities")
        row = {
            "time": int(answer.time * 1e6),
            "version": answer.version,
            "label": _to_text(found.get("label")),
            "probability": max(scores) if scores else None,
            "probabilities": scores,
            "known": found.get("known"),
            "embedding": found.get("embedding"),
            "error": _to_text(found.get("error")),
        }
        if answer.file is not None:
            with self._lock:
                self._held -= len(answer.file)
            row |= self._measure_file(answer.version, answer.file)
            if answer.is_kept:
                row["picture"] = self._keep(answer.time, answer.file)
        return row

    def _measure_file(self, version: str, file: bytes) -> dict[str, float]:
        if self._closing.is_set():
            return {}
        began = time.thread_time()
        try:
            if self._measure[0] != version:
                self._measure = version, None
                self._measure = version, self._find_measure(version)
            return self._measure[1](file) if self._measure[1] else {}
        except Exception:  # Decoders and stores raise anything.
            return {}
        finally:
            self._closing.wait(_REST * (time.thread_time() - began))

    def _keep(self, seconds: float, file: bytes) -> str | None:
        if time.monotonic() < self._retry_at:
            return None
        ending = _ENDINGS.get(file[:2], "heic" if file[4:8] == b"ftyp" else "tif")
        name = f"{PICTURES}/{_name(seconds)}.{ending}"
        return name if self._attempt(lambda: self._write(name, file)) else None

    def _flush(self) -> None:
        self._check_clock()
        rows, kept = self._rows, [column.name for column in _SCHEMA]
        if rows:
            columns = {name: [row.get(name) for row in rows] for name in kept}
            buffer = pa.BufferOutputStream()
            pq.write_table(pa.table(columns, schema=_SCHEMA), buffer, compression="zstd")
            name = f"{ANSWERS}/{_name(time.time())}.parquet"
            content = buffer.getvalue().to_pybytes()
            if self._attempt(lambda: self._write(name, content)):
                self._rows_metric.labels("written").inc(len(rows))
                self._rows = []
            elif len(rows) > _MOST_ROWS:
                self._rows_metric.labels("lost").inc(len(rows) - _MOST_ROWS)
                self._rows = rows[-_MOST_ROWS:]
        if not self._retry_at:
            self._attempt(self._prune)

    def _write(self, name: str, content: bytes) -> None:
        replace_file(f"{self._folder}/{name}", content)
        self._files[name] = len(content)

    def _attempt(self, task: Callable[[], None]) -> bool:
        """Return whether a task succeeds; say once that the log fails, and that it works again."""
        was_failing = self._retry_at > 0
        try:
            task()
        except Exception as error:  # Each file system has errors of its own.
            if not was_failing:
                _LOGGER.warning("The log fails, serving goes on: %s.", reason_of(error))
            self._retry_at = time.monotonic() + _FLUSH_SECONDS
            self._failing.set(1)
            return False
        if was_failing:
            _LOGGER.warning("The log is written again.")
        self._retry_at = 0.0
        self._failing.set(0)
        return True

    def _check_clock(self) -> None:
        jump = time.time() - time.monotonic() - self._started
        if abs(jump) > _JUMP_SECONDS and not self._has_jumped:
            self._has_jumped = True
            _LOGGER.warning(
                "The clock jumped by %.1f hours. Until the server is started again, no file of the "
                "log is removed for its age.",
                jump / 3600,
            )

    def _prune(self) -> None:
        """Remove files beyond the limits, the oldest first."""
        if time.monotonic() >= self._list_at:
            self._files = list_files(self._folder)
            self._list_at = time.monotonic() + _LISTING_SECONDS
        fs, root = open_folder(self._folder)
        oldest = time.strftime("%Y-%m-%d", _utc(time.time() - self._limits.days * _DAY_SECONDS))
        size = sum(self._files.values())
        for name in sorted(self._files, key=lambda name: name.partition("/")[2]):
            is_old = name.split("/")[1] < oldest and not self._has_jumped
            if not is_old and size <= self._limits.bytes:
                break
            with contextlib.suppress(FileNotFoundError):
                fs.rm_file(f"{root}/{name}")
            size -= self._files.pop(name)


def list_files(folder: str) -> dict[str, int]:
    """Return the files of a log, name within the folder → bytes; none if there is no such folder.

    Raises:
        StorageError: the folder, a path or URL, cannot be listed.
    """
    fs, root = open_folder(folder)
    with explaining_errors("list", folder):
        fs.invalidate_cache()
        found = fs.find(root, detail=True)
    sizes = {path.removeprefix(f"{root}/"): int(info["size"]) for path, info in found.items()}
    return {name: size for name, size in sizes.items() if _OWN_FILE.fullmatch(name)}


def _name(seconds: float) -> str:
    second = time.strftime("%Y-%m-%d/%H%M%S", _utc(seconds))
    return f"{second}{seconds % 1 * 1e6:06.0f}-{uuid.uuid4().hex[:8]}"


def _utc(seconds: float) -> time.struct_time:
    return time.gmtime(max(0.0, seconds))


def _to_text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

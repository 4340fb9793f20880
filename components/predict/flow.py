"""Predict files in order: read, check, batch, predict.

While the model predicts one batch, other threads read and check the next ones. The queues are
bounded in files and bytes, so memory does not grow with the number of files.
"""

import collections
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from components.contract.artifact_files import on_disk
from components.images.check import check_image, usable
from components.images.check_result import Category, CheckedImage, Rejected
from components.images.options import FileOptions
from components.predict.files import ListedFile, Source, divide
from components.predict.model import Answer, Ranking
from components.storage.fetch import Content, read_files

Status = Literal["answered", "refused", "skipped"]

_Checked = tuple[str, "CheckedImage | FileOutcome"]

BATCH_PIXELS = 32_000_000
"""Pixels of a batch, which are decoded at the same time at about 15 bytes each. A single image may
have more."""

# Files of one task: submitting each small file by itself costs more than checking it.
_TASK_FILES = 16
_TASK_BYTES = 8 * 2**20
# Tasks per thread, and batches, that are prepared ahead.
# Larger batches are hardly faster on CPUs.
_BATCH_IMAGES = 64
_TASKS_AHEAD = 2
_BATCHES_AHEAD = 2

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class FileOutcome:
    """The result for one file."""

    file: str
    """Its name as given, or its path under the folder that was given."""
    status: Status
    """skipped: not an image by its name, so it was not read. refused: ingest would reject it, or
    the model cannot decode it."""
    ranking: Ranking = ()
    """Empty unless the file was answered."""
    known: bool | None = None
    """Whether the image is like those of training; None if the model does not say."""
    known_score: float | None = None
    category: str = ""
    """Category of the reject, as in ingest."""
    reason: str = ""
    """Why there is no prediction."""


class StatusCounts:
    """Counts outcomes as they pass and checks that no file is lost."""

    def __init__(self, total: int) -> None:
        """Expect `total` files."""
        self.total = total
        self.by_status: collections.Counter[str] = collections.Counter()
        self.labels: collections.Counter[str] = collections.Counter()
        self.unknown = 0
        """Answered images that the model calls unknown."""

    def count(self, outcomes: Iterable[FileOutcome]) -> Iterator[FileOutcome]:
        """Yield the outcomes and count them; raise `RuntimeError` if a file was lost."""
        for outcome in outcomes:
            self.by_status[outcome.status] += 1
            if outcome.ranking:
                self.labels[outcome.ranking[0][0]] += 1
            self.unknown += outcome.known is False
            yield outcome
        if self.by_status.total() != self.total:
            raise RuntimeError(f"{self.total:,} files, but {self.by_status.total():,} outcomes")

    def __str__(self) -> str:
        """Return the number of files by status."""
        counts = [f"{self.by_status[name]:,} {name}" for name in get_args(Status)]
        some = [text for text in counts if not text.startswith("0 ")]
        return f"{self.total:,} file{'s' * (self.total != 1)}: {', '.join(some) or 'none'}"


Model = Callable[[Sequence[bytes]], Sequence[Answer | str]]
"""Image files → the labels of each, or why the model cannot decode it."""


def predict(sources: Iterable[Source], model: Model, options: FileOptions) -> Iterator[FileOutcome]:
    """Yield the outcome of each file, in order.

    The model receives the images as ingest would store them with these `options`, as in training.
    """
    tasks = itertools.chain.from_iterable(_tasks(source, options) for source in sources)
    with ThreadPoolExecutor(options.workers) as threads, ThreadPoolExecutor(1) as thread:
        checked = _run_ahead(threads, tasks, _TASKS_AHEAD * options.workers)
        batches = _batches(itertools.chain.from_iterable(checked))
        next_batch = itertools.repeat(lambda: next(batches, None))
        for batch in _run_ahead(thread, next_batch, _BATCHES_AHEAD):
            if batch is None:
                return
            yield from _predict_batch(batch, model)


def _run_ahead(
    threads: ThreadPoolExecutor, tasks: Iterator[Callable[[], _Result]], ahead: int
) -> Iterator[_Result]:
    """Yield the results of tasks in order, while threads run the next `ahead` tasks."""
    waiting = collections.deque(map(threads.submit, itertools.islice(tasks, ahead)))
    while waiting:
        result = waiting.popleft().result()
        waiting.extend(map(threads.submit, itertools.islice(tasks, 1)))
        yield result


def _tasks(source: Source, options: FileOptions) -> Iterator[Callable[[], list[_Checked]]]:
    """Yield functions that check a few files each.

    The thread that checks local files also reads them. Remote files are fetched many at a time.
    """
    contents = None if on_disk(source.folder) else _read(source, options)
    for part in _parts(source):
        if contents is None:
            some = _read(part, options)
        else:
            some = iter([*itertools.islice(contents, len(part.entries))])
        yield functools.partial(_check_all, some, options)


def _parts(source: Source) -> Iterator[Source]:
    """Divide a source into parts of a few files and a few MiB."""
    for part in divide(source, _TASK_FILES):
        large = sum(entry.file.size for entry in part.entries) > _TASK_BYTES
        yield from divide(part, 1) if large else (part,)


def _read(source: Source, options: FileOptions) -> Iterator[tuple[ListedFile, Content | None]]:
    """Yield each file with its bytes or error; with None if it is skipped."""
    files = [entry.file for entry in source.entries if not entry.skipped]
    contents = read_files(source.folder, files, options)
    for entry in source.entries:
        yield entry, None if entry.skipped else next(contents)[1]


def _check_all(
    contents: Iterable[tuple[ListedFile, Content | None]], options: FileOptions
) -> list[_Checked]:
    return [(entry.name, _check(entry, content, options)) for entry, content in contents]


def _check(
    entry: ListedFile, content: Content | None, options: FileOptions
) -> CheckedImage | FileOutcome:
    if content is None:
        return FileOutcome(entry.name, "skipped", reason=entry.skipped)
    try:
        return check_image(usable(content), options)
    except Rejected as rejected:
        return FileOutcome(
            entry.name, "refused", category=rejected.category.value, reason=str(rejected)
        )


def _batches(items: Iterable[_Checked]) -> Iterator[list[_Checked]]:
    """Group files, in order, so that the images of a group fill a batch."""
    batch: list[_Checked] = []
    images = pixels = 0
    for name, item in items:
        size = item.width * item.height if isinstance(item, CheckedImage) else 0
        full = images == _BATCH_IMAGES or pixels + size > BATCH_PIXELS
        if (full and images) or len(batch) >= 2 * _BATCH_IMAGES:
            yield batch
            batch, images, pixels = [], 0, 0
        batch.append((name, item))
        images, pixels = images + isinstance(item, CheckedImage), pixels + size
    if batch:
        yield batch


def _predict_batch(batch: Sequence[_Checked], model: Model) -> Iterator[FileOutcome]:
    images = [item.encoded for _, item in batch if isinstance(item, CheckedImage)]
    predictions = iter(model(images)) if images else iter(())
    for name, item in batch:
        if isinstance(item, FileOutcome):
            yield item
        elif isinstance(prediction := next(predictions), str):
            yield FileOutcome(
                name, "refused", category=Category.UNREADABLE.value, reason=prediction
            )
        else:
            yield FileOutcome(name, "answered", *prediction)

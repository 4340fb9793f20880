"""From files to answers, in the order of the files: read, check, batch, ask.

While the model answers one batch, the next ones are read and checked by other threads. What waits
is bounded in files and in bytes, so that memory does not grow with the number of files.
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

from components.images.check import check_image
from components.images.check_result import Category, CheckedImage, Rejected, usable
from components.images.options import FileOptions
from components.predict.config import PredictConfig
from components.predict.outcome import Outcome, Ranking
from components.predict.sources import Entry, Source, divide
from components.storage.artifact_files import on_disk
from components.storage.fetch import Content, read_files

Item = tuple[str, CheckedImage | Outcome]
"""The name of a file, and its image, or what has become of it already."""

# One task of a thread: handing over each file by itself costs more than checking a small one.
_TOGETHER = 16
_TOGETHER_BYTES = 8 * 2**20
# Tasks for each thread, and batches, that are ready or on their way.
_TASKS_AHEAD = 2
_BATCHES_AHEAD = 2

_Made = TypeVar("_Made")


class Model(Protocol):
    """Answers images."""

    def ask(self, images: Sequence[bytes]) -> Sequence[Ranking | str]:
        """Return the labels of each image, or why the model cannot read it."""


def predict(
    sources: Iterable[Source], model: Model, config: PredictConfig, options: FileOptions
) -> Iterator[Outcome]:
    """Yield what becomes of each file, in order.

    Args:
        sources: the files.
        model: gets them as ingest would store them.
        config: how many images the model is asked about at once.
        options: those of ingest, so that the model sees what it saw in training.
    """
    with ThreadPoolExecutor(options.workers) as threads:
        items = _check_ahead(sources, options, threads)
        for batch in _make_ahead(_batches(items, config)):
            yield from _answer(batch, model)


def _check_ahead(
    sources: Iterable[Source], options: FileOptions, threads: ThreadPoolExecutor
) -> Iterator[Item]:
    """Yield all files checked, while threads check the next ones."""
    waiting: collections.deque[Future[list[Item]]] = collections.deque()
    try:
        for task in itertools.chain.from_iterable(_tasks(source, options) for source in sources):
            waiting.append(threads.submit(task))
            if len(waiting) > _TASKS_AHEAD * options.workers:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def _tasks(source: Source, options: FileOptions) -> Iterator[Callable[[], list[Item]]]:
    """Yield functions that check some files each.

    Files on disk are read by the thread that checks them; a remote store is asked for many at a
    time, in one go.
    """
    contents = None if on_disk(source.folder) else _read(source, options)
    for part in _parts(source):
        some = _read(part, options) if contents is None else _take(contents, len(part.entries))
        yield functools.partial(_check_all, some, options)


def _take(contents: Iterator[_Made], count: int) -> list[_Made]:
    return list(itertools.islice(contents, count))


def _parts(source: Source) -> Iterator[Source]:
    """Divide a source into parts of a few files, and a few MiB unless a file is larger."""
    for part in divide(source, _TOGETHER):
        large = sum(entry.file.size for entry in part.entries) > _TOGETHER_BYTES
        yield from divide(part, 1) if large else (part,)


def _read(source: Source, options: FileOptions) -> Iterator[tuple[Entry, Content | None]]:
    """Yield each file with its bytes, or why there are none; None for those skipped."""
    files = [entry.file for entry in source.entries if not entry.skipped]
    contents = read_files(source.folder, files, options)
    for entry in source.entries:
        yield entry, None if entry.skipped else next(contents)[1]


def _check_all(
    contents: Iterable[tuple[Entry, Content | None]], options: FileOptions
) -> list[Item]:
    return [(entry.name, _check(entry, content, options)) for entry, content in contents]


def _check(entry: Entry, content: Content | None, options: FileOptions) -> CheckedImage | Outcome:
    if content is None:
        return Outcome(entry.name, "skipped", reason=entry.skipped)
    try:
        return check_image(usable(content), options)
    except Rejected as rejected:
        return Outcome(
            entry.name, "refused", category=rejected.category.value, reason=str(rejected)
        )


def _batches(items: Iterable[Item], config: PredictConfig) -> Iterator[list[Item]]:
    """Group items, in order, until the images of a group are a batch."""
    batch: list[Item] = []
    images = pixels = 0
    for name, item in items:
        size = item.width * item.height if isinstance(item, CheckedImage) else 0
        full = images == config.batch or pixels + size > config.batch_mpixels * 1e6
        if (full and images) or len(batch) >= 2 * config.batch:
            yield batch
            batch, images, pixels = [], 0, 0
        batch.append((name, item))
        images, pixels = images + isinstance(item, CheckedImage), pixels + size
    if batch:
        yield batch


def _make_ahead(items: Iterator[_Made]) -> Iterator[_Made]:
    """Yield items, while a thread makes the next ones."""
    with ThreadPoolExecutor(1) as maker:
        waiting = collections.deque(maker.submit(next, items, None) for _ in range(_BATCHES_AHEAD))
        while (item := waiting.popleft().result()) is not None:
            waiting.append(maker.submit(next, items, None))
            yield item


def _answer(batch: Sequence[Item], model: Model) -> Iterator[Outcome]:
    images = [item.encoded for _, item in batch if isinstance(item, CheckedImage)]
    answers = iter(model.ask(images)) if images else iter(())
    for name, item in batch:
        if isinstance(item, Outcome):
            yield item
        elif isinstance(answer := next(answers), str):
            yield Outcome(name, "refused", category=Category.UNREADABLE.value, reason=answer)
        else:
            yield Outcome(name, "answered", answer)

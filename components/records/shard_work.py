"""A Beam DoFn that processes whole shards, several at the same time."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

import apache_beam as beam

from components.contract.errors import UserError


class ConcurrentDoFn(beam.DoFn):
    """Processes each element in its own thread; yields nothing, as results are files.

    A bundle ends when all its elements are done. It fails only after all threads have stopped, so
    that nothing is written while, or after, Beam retries it.
    """

    def __init__(self, workers: int) -> None:
        """Process up to `workers` elements at the same time."""
        self._workers = workers
        self._running: set[Future[None]] = set()

    @abc.abstractmethod
    def work(self, element: Any) -> None:
        """Process one element."""

    def work_here(self, elements: Iterable[Any]) -> None:
        """Process all elements without Beam."""
        self.setup()
        try:
            self.start_bundle()
            for element in elements:
                for _ in self.process(element):
                    pass
            self.finish_bundle()
        finally:
            self.teardown()

    def start_bundle(self) -> None:
        """Start the threads."""
        self._pool = ThreadPoolExecutor(self._workers)
        self._running = set()

    def process(self, element: Any) -> Iterator[None]:
        """Start `element` as soon as a thread is free."""
        if len(self._running) >= self._workers:
            self._wait()
        self._running.add(self._pool.submit(self.work, element))
        yield from ()

    def finish_bundle(self) -> None:
        """Wait for the remaining elements."""
        while self._running:
            self._wait()
        self._pool.shutdown()

    def _wait(self) -> None:
        done, self._running = wait(self._running, return_when=FIRST_COMPLETED)
        failures = [error for future in done if (error := future.exception())]
        if failures:
            self._pool.shutdown(wait=True, cancel_futures=True)
            if isinstance(failures[0], UserError):
                # Keeps Beam from appending the name of its step to the message.
                failures[0].__dict__["_tagged_with_step"] = True
            raise failures[0]

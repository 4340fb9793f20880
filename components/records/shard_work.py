"""A Beam DoFn that processes whole shards, several at the same time, with or without Beam."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

import apache_beam as beam

from components.contract import rules_of_thumb
from components.contract.artifact_files import on_disk, uses_other_machines
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

    def run(
        self,
        elements: Sequence[Any],
        make_pipeline: Callable[[], beam.Pipeline],
        beam_args: Sequence[str],
        *,
        target: str,
        images: int | None,
    ) -> None:
        """Process all elements, for which Beam is not started if it would only take time.

        Args:
            elements: what to process, in any order.
            make_pipeline: makes a pipeline with the options `beam_args`.
            beam_args: options of Beam.
            target: path or URL of the folder that is written.
            images: number of images of all elements, if it is known.
        """
        are_few = images is not None and images <= rules_of_thumb.FEW_FOR_BEAM
        if are_few and on_disk(target) and not uses_other_machines(beam_args):
            self._run_here(elements)
            return
        with make_pipeline() as pipeline:
            _ = (
                pipeline
                | "Elements" >> beam.Create(elements, reshuffle=False)
                | "Spread" >> beam.Reshuffle()
                | type(self).__name__ >> beam.ParDo(self)
            )

    def _run_here(self, elements: Sequence[Any]) -> None:
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

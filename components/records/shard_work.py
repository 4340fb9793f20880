"""A Beam DoFn that processes whole shards, several at the same time, with or without Beam."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
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
            self.setup()
            try:
                self._work_on(elements)
            finally:
                self.teardown()
            return
        with make_pipeline() as pipeline:
            _ = (
                pipeline
                | "Elements" >> beam.Create(elements, reshuffle=False)
                | "Spread" >> beam.Reshuffle()
                | type(self).__name__ >> beam.ParDo(self)
            )

    def start_bundle(self) -> None:
        """Begin a list of elements."""
        self._elements: list[Any] = []

    def process(self, element: Any) -> None:
        """Note `element`, which `finish_bundle` processes."""
        self._elements.append(element)

    def finish_bundle(self) -> None:
        """Process the elements of the bundle."""
        self._work_on(self._elements)

    def _work_on(self, elements: Sequence[Any]) -> None:
        with ThreadPoolExecutor(self._workers) as pool:
            jobs = [pool.submit(self.work, element) for element in elements]
            wait(jobs, return_when=FIRST_EXCEPTION)
            pool.shutdown(cancel_futures=True)
        for error in [job.exception() for job in jobs if not job.cancelled()]:
            if isinstance(error, UserError):
                # Keeps Beam from appending the name of its step to the message.
                error.__dict__["_tagged_with_step"] = True
            if error:
                raise error

"""The run that a user names, or that pushed a version."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from components.contract.artifact_files import on_disk
from components.contract.errors import DataError, StorageError
from components.contract.printable import read_number
from components.storage.saved_model import original_version
from pipeline_def.layout import Layout
from pipeline_def.runs.record import RunRecord, find_producers, read_records
from pipeline_def.steps import EVALUATOR


def flatten(configuration: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each setting under its option name, such as `training.epochs`."""
    for name, value in configuration.items():
        if isinstance(value, dict) and value:
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


@dataclass(frozen=True)
class SelectedRun:
    """A run, and the output folder in which it was found."""

    record: RunRecord
    output: str
    number: int
    """In the list of runs, from 1 on."""

    def find_artifact(self, step: str, name: str) -> str:
        """Return the folder of a step's output.

        Raises:
            DataError: the run ended before it produced this output.
            StorageError: the artifact is not on this machine, or that of a later run.
        """
        finished = self.record.steps.get(step)
        if finished is None or name not in finished.outputs:
            raise DataError(
                f"Run {self.record.id} in {self.output} has no {name}: it did not finish {step}."
            )
        uri = finished.outputs[name].uri
        if not on_disk(uri):
            raise StorageError(
                f"{uri} of run {self.record.id} is not on this machine. Only runs with local "
                "artifacts can be compared."
            )
        producer, _ = find_producers(read_records(self.output)).get(uri, (self.record, step))
        if producer.started > self.record.started:
            raise StorageError(
                f"{uri} of run {self.record.id} is gone: run {producer.id} has another in its "
                "place."
            )
        return uri


def read_runs(output: str) -> list[RunRecord]:
    """Return the records in an output folder, newest last.

    Raises:
        StorageError: there are none, or they cannot be read.
    """
    records = read_records(output)
    if not records:
        raise StorageError(
            f"{output} has no runs: {Layout(output).runs} has no records. Pass the output folder "
            "with --output."
        )
    return records


def select(wanted: str, output: str) -> SelectedRun:
    """Find the run that `wanted` names.

    Args:
        wanted: number in the list of runs, starting at 1; version that the run pushed, the first
            one of several; id; or another output folder, for its newest run that evaluated a model.
        output: output folder of the runs.

    Raises:
        DataError: no run matches.
        StorageError: the folder has no runs, or they cannot be read.
    """
    number = read_number(wanted)
    if number is None and os.path.isdir(wanted):
        output = os.path.abspath(wanted)
        records = read_runs(output)
        number = (list_evaluated(records) or [len(records)])[-1]
        return SelectedRun(records[number - 1], output, number)
    records = read_runs(output)
    if number and number <= len(records):
        return SelectedRun(records[number - 1], output, number)
    for number, run in enumerate(records, 1):
        if wanted in (run.id, run.pushed and run.pushed.version):
            return SelectedRun(run, output, number)
    numbers = f"runs 1 to {len(records)}" if len(records) > 1 else "only run 1"
    raise DataError(
        f"No run matches {wanted!r} in {output}, which has {numbers}. "
        f"`local_runner.py runs --output {output}` lists them."
    )


def find_run(output: str, has: Callable[[RunRecord], object], *, missing: str) -> SelectedRun:
    """Return the newest run that `has` what is needed.

    Raises:
        DataError: there is none; `missing` completes "No run in OUTPUT ...".
        StorageError: the folder has no runs, or they cannot be read.
    """
    for number, record in reversed([*enumerate(read_runs(output), 1)]):
        if has(record):
            return SelectedRun(record, output, number)
    raise DataError(f"No run in {output} {missing}: run the pipeline again.")


def find_push(output: str, version: str, *, records: str | None = None) -> SelectedRun | None:
    """Return the first run that pushed the model of a version; None if no record names it.

    `records` is the folder of an `output` at a URL whose records have been fetched.
    """
    version = original_version(os.path.join(Layout(output).pushed, version))
    for number, run in enumerate(read_records(records or output), 1):
        if run.pushed and run.pushed.version == version:
            return SelectedRun(run, records or output, number)
    return None


def list_evaluated(records: Sequence[RunRecord]) -> list[int]:
    """Return the numbers, from 1 on, of the runs that evaluated a model."""
    return [
        number
        for number, run in enumerate(records, 1)
        if EVALUATOR.id in run.steps and "evaluation" in run.steps[EVALUATOR.id].outputs
    ]

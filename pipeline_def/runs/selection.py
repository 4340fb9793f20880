"""Find the run that a user names: by its number in the list, id, pushed version or folder."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from components.contract.artifact_files import on_disk
from components.contract.errors import DataError, StorageError
from components.contract.printable import read_number
from components.storage.saved_model import original_version
from pipeline_def.layout import Layout
from pipeline_def.runs.record import RunRecord, read_records
from pipeline_def.steps import EVALUATOR


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
            StorageError: the artifact is not on this machine.
        """
        finished = self.record.steps.get(step)
        if finished is None or name not in finished.outputs:
            lacks = "did not evaluate a model" if step == EVALUATOR.id else "did not ingest images"
            raise DataError(
                f"Run {self.record.id} in {self.output} {lacks}: {self._describe_progress()}."
            )
        uri = finished.outputs[name].uri
        if not on_disk(uri):
            raise StorageError(
                f"{uri} of run {self.record.id} is not on this machine. Only runs with local "
                "artifacts can be compared."
            )
        return uri

    def _describe_progress(self) -> str:
        last = next(reversed(self.record.steps), "")
        state = {"done": "it ended", "running": "it is running"}.get(
            self.record.state, f"it {self.record.state}"
        )
        return f"{state} at {last}" if last else f"{state} before its first step"


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
        wanted: number in the list of runs, starting at 1; prefix of an id; version that the run
            pushed; another output folder, for its newest run that evaluated a model; or the folder
            of a record, `OUTPUT/runs/ID`.
        output: output folder of the runs.

    Raises:
        DataError: no run matches, or several do.
        StorageError: the folder has no runs, or they cannot be read.
    """
    if read_number(wanted) is None and os.path.isdir(wanted):
        return _select_in(os.path.abspath(wanted))
    records = read_runs(output)
    matches = _find(wanted, records)
    if len(matches) == 1:
        return SelectedRun(matches[0], output, records.index(matches[0]) + 1)
    problem = f"{len(matches)} runs match" if matches else "No run matches"
    numbers = f"runs 1 to {len(records)}" if len(records) > 1 else "only run 1"
    raise DataError(
        f"{problem} {wanted!r} in {output}, which has {numbers}. "
        f"`local_runner.py runs --output {output}` lists them."
    )


def _find(wanted: str, records: Sequence[RunRecord]) -> list[RunRecord]:
    number = read_number(wanted)
    if number and number <= len(records):
        return [records[number - 1]]
    if pushed := [run for run in records if run.pushed and run.pushed.version == wanted]:
        return pushed[:1]
    # Digits alone are not an id, because all ids of a year start with the same digits.
    return [run for run in records if number is None and run.id.startswith(wanted)]


def _select_in(folder: str) -> SelectedRun:
    above = os.path.dirname(os.path.dirname(folder))
    for number, record in enumerate(read_records(above), 1):
        if os.path.dirname(Layout(above).record(record.id)) == folder:
            return SelectedRun(record, above, number)
    records = read_runs(folder)
    number = (list_evaluated(records) or [len(records)])[-1]
    return SelectedRun(records[number - 1], folder, number)


def find_push(output: str, version: str) -> int | None:
    """Return the number of the run that pushed a version's model; None if no record names it."""
    version = original_version(os.path.join(Layout(output).pushed, version))
    pushes = (run.pushed and run.pushed.version for run in read_records(output))
    return next((number for number, pushed in enumerate(pushes, 1) if pushed == version), None)


def list_evaluated(records: Sequence[RunRecord]) -> list[int]:
    """Return the numbers, from 1 on, of the runs that evaluated a model."""
    return [
        number
        for number, run in enumerate(records, 1)
        if EVALUATOR.id in run.steps and "evaluation" in run.steps[EVALUATOR.id].outputs
    ]

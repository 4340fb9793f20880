"""The run that a person means: by its number in the list, its id, its version or its folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from components.contract.errors import DataError, StorageError
from components.contract.kinds import read_number
from components.storage.artifact_files import on_disk
from pipeline_def.layout import Layout
from pipeline_def.runs.record import RunRecord, read_records

_EVALUATOR = "Evaluator"
_EARLIER = "runs of earlier versions, which kept no records, are not listed."


@dataclass(frozen=True)
class Selected:
    """A run, and the output folder that it was found in."""

    record: RunRecord
    output: str

    def find_artifact(self, step: str, name: str) -> str:
        """Return the folder of an output of a step, also if the output folder was moved since.

        Raises:
            DataError: the run did not get as far.
            StorageError: it lies on another machine.
        """
        made = self.record.steps.get(step)
        if made is None or name not in made.outputs:
            lacks = "evaluated no model" if step == _EVALUATOR else "ingested no images"
            raise DataError(
                f"The run {self.record.id} in {self.output} has {lacks}: {self._say_how_far()}."
            )
        uri = made.outputs[name].uri
        if not on_disk(uri):
            raise StorageError(
                f"{uri} of the run {self.record.id} is not on this machine: only runs whose "
                "artifacts are here can be compared."
            )
        before = str(self.record.configuration.get("output"))
        if not os.path.exists(uri) and uri.startswith(f"{before}/"):
            return os.path.join(self.output, os.path.relpath(uri, before))
        return uri

    def _say_how_far(self) -> str:
        last = next(reversed(self.record.steps), "")
        state = {"done": "it ended", "running": "it is running"}.get(
            self.record.state, f"it {self.record.state}"
        )
        return f"{state} at {last}" if last else f"{state} before its first step"


def read_runs(output: str) -> list[RunRecord]:
    """Return the records in an output folder, the newest last.

    Raises:
        StorageError: there are none, or they cannot be read.
    """
    records = read_records(output)
    if not records and os.path.exists(Layout(output).metadata):
        raise StorageError(f"{output} has no runs to list yet; {_EARLIER}")
    if not records:
        raise StorageError(
            f"{output} has no runs: there is no {Layout(output).runs}. Name the folder of the "
            "runs with --output."
        )
    return records


def note_earlier(records: Sequence[RunRecord]) -> str:
    """Say that there were runs before these; "" if there were none."""
    return f"Note: {_EARLIER}" if any(record.earlier_runs for record in records) else ""


def select(wanted: str, output: str) -> Selected:
    """Find the run that `wanted` names.

    Args:
        wanted: number in the list of the folder `output`, from 1 on; the beginning of an id; the
            version that the run has pushed; another output folder, for its newest run that
            evaluated a model; or the folder of a record, `OUTPUT/runs/ID`.
        output: folder of the runs.

    Raises:
        DataError: there is no such run, or there are several.
        StorageError: the folder has no runs, or they cannot be read.
    """
    if read_number(wanted) is None and os.path.isdir(wanted):
        return _select_in(os.path.abspath(wanted))
    records = read_runs(output)
    found = _find(wanted, records)
    if len(found) == 1:
        return Selected(found[0], output)
    problem = f"{len(found)} runs" if found else "no run"
    numbers = f"runs 1 to {len(records)}" if len(records) > 1 else "one run, 1"
    raise DataError(
        f"There {'are' if found else 'is'} {problem} {wanted} in {output}, which has {numbers}; "
        f"local_runner.py runs --output {output} lists them."
    )


def _find(wanted: str, records: Sequence[RunRecord]) -> list[RunRecord]:
    number = read_number(wanted)
    if number and number <= len(records):
        return [records[number - 1]]
    if pushed := [run for run in records if run.pushed and run.pushed.version == wanted]:
        return pushed[:1]
    # Digits alone are no id: all runs of a year begin with the same ones.
    return [run for run in records if number is None and run.id.startswith(wanted)]


def _select_in(folder: str) -> Selected:
    above = os.path.dirname(os.path.dirname(folder))
    for record in read_records(above):
        if os.path.dirname(Layout(above).record(record.id)) == folder:
            return Selected(record, above)
    records = read_runs(folder)
    evaluated = [run for run in records if _has_evaluated(run)]
    return Selected((evaluated or records)[-1], folder)


def _has_evaluated(run: RunRecord) -> bool:
    return _EVALUATOR in run.steps and "evaluation" in run.steps[_EVALUATOR].outputs

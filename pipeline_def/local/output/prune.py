"""Removes artifacts that no recent run and no model needs: `runs --prune N`."""

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from components.contract.errors import ConfigurationError, DataError, StorageError
from components.contract.printable import describe_bytes, make_printable, read_number
from components.storage.saved_model import original_version, whole_versions
from pipeline_def.layout import Layout
from pipeline_def.local.output.checks import check_metadata
from pipeline_def.local.output.integrity import mark_deleted
from pipeline_def.runs.history import read_runs, trace
from pipeline_def.runs.record import RunRecord, find_producers


def prune(output: str, wanted: str, *, confirmed: bool) -> None:
    """Print what pruning to the newest `wanted` finished runs removes; with `confirmed`, remove it.

    The output must be locked.

    Raises:
        ConfigurationError: `wanted` is not a number of runs.
        StorageError: there are no runs, or a folder cannot be removed.
    """
    if not (number := read_number(wanted)):
        raise ConfigurationError(f"--prune is {wanted!r}: give the number of runs to keep, from 1.")
    removed = plan_removal(output, number)
    if not removed:
        print(f"Nothing to remove: runs and the current model need all artifacts in {output}.")
        return
    for run in sorted({*removed.values()}):
        folders = [folder for folder, made_by in removed.items() if made_by == run]
        steps = dict.fromkeys(Path(folder).parts[-3] for folder in folders)
        print(make_printable(f"Run {run}: {', '.join(steps)}"))
    what = f"\n{len(removed):,} artifacts, {describe_bytes(_count_bytes(removed))}"
    if not confirmed:
        print(f"{what}, would be removed: add --yes. Records and pushed models would stay.")
        return
    layout = Layout(output)
    check_metadata(layout)
    # First, so that no run takes what a kill leaves of a folder from the cache.
    mark_deleted(layout, removed.keys())
    for folder in removed:
        try:
            shutil.rmtree(folder)
        except OSError as error:
            raise StorageError(f"Cannot remove {folder}: {error.strerror}.") from error
    print(f"{what}, were removed. Records and pushed models stayed.")


def plan_removal(output: str, number: int) -> dict[str, int]:
    """Choose the artifacts that only runs before the newest `number` finished ones have made.

    Those that later runs used, or that led to the current model, stay.

    Returns:
        Folder of each artifact → number of the run that made it, in the list of runs.
    """
    records, layout = read_runs(output), Layout(output)
    done = [index for index, record in enumerate(records) if record.state == "done"]
    if len(done) <= number:
        return {}
    kept = {_folder(uri, layout) for uri in _find_needed(records, done[-number], layout)}
    makers = {
        _folder(uri, layout): records.index(record) + 1
        for uri, (record, _) in find_producers(records).items()
    }
    return {
        folder: run
        for folder, run in sorted(makers.items())
        if folder and folder not in kept and os.path.isdir(folder)
    }


def _find_needed(records: Sequence[RunRecord], first: int, layout: Layout) -> Iterator[str]:
    """Yield the URIs that the runs from `first` on, and the lineage of the current model, name."""
    steps = [step for record in records[first:] for step in record.steps.values()]
    for version in map(original_version, [*whole_versions(layout.pushed)][:1]):
        lineage = [run.steps[name] for run, name in trace(records, version)]
        if not lineage:
            raise DataError(
                f"No recorded run pushed {version!r}, the current model. Without a record of its "
                "lineage nothing is removed."
            )
        steps += lineage
    for step in steps:
        yield from (output.uri for output in step.outputs.values())
        for uris in step.inputs.values():
            yield from uris


def _folder(uri: str, layout: Layout) -> str:
    """Return the folder `artifacts/STEP/OUTPUT/NUMBER` of an artifact; "" if it lies elsewhere."""
    parts = Path(os.path.relpath(uri, layout.artifacts)).parts
    is_inside = ".." not in parts and len(parts) >= 3 and parts[2].isdigit()
    return os.path.join(layout.artifacts, *parts[:3]) if is_inside else ""


def _count_bytes(folders: Iterable[str]) -> int:
    """Count the bytes of files all of whose hard links are in `folders`."""
    links: dict[tuple[int, int], list[os.stat_result]] = {}
    for folder in folders:
        for parent, _, names in os.walk(folder):
            for status in (os.lstat(os.path.join(parent, name)) for name in names):
                links.setdefault((status.st_dev, status.st_ino), []).append(status)
    return sum(
        statuses[0].st_size for statuses in links.values() if len(statuses) == statuses[0].st_nlink
    )

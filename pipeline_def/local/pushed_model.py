"""Finds a pushed model, and how ingest stored the images that it was trained on.

The model of a run that is not blessed can be used, too, on purpose.
"""

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

from components.contract.artifact_files import list_names, on_disk
from components.contract.errors import ModelError, UserError
from components.contract.printable import name_some
from components.images.options import FileOptions
from components.records.shard_files import read_index
from components.storage.saved_model import GRAPH, SERVING_FOLDER, whole_versions
from pipeline_def.config.config import Config
from pipeline_def.layout import Layout
from pipeline_def.local.output.folder import RECORDS, open_output
from pipeline_def.runs.history import find_push
from pipeline_def.runs.record import RunRecord, read_records
from pipeline_def.steps import EXAMPLE_GEN, TRAINER

UNBLESSED = "0"
"""Version of a model that is not pushed."""

_MOST_NAMED = 5


def find_unblessed(output: str) -> tuple[str, str]:
    """Return the folder of the model that the newest run in `output` trained, and its verdict.

    The verdict is a sentence for those who use the model.

    Raises:
        ModelError: there is none on this machine.
    """
    number, run = next(_list_trained(output), (0, None))
    if run is None:
        raise ModelError(f"No run in {output} has trained a model: run the pipeline.")
    folder = _find_trained(run)
    if not (os.path.isdir(folder) and _is_model(folder)):
        raise ModelError(f"The model of run {number} is not on this machine: {folder} is missing.")
    blessed = "is blessed" if run.blessed else "is not blessed"
    return folder, f"The model of run {number} {blessed}. {run.headline or 'It was not evaluated.'}"


def _list_trained(output: str) -> Iterator[tuple[int, RunRecord]]:
    """Yield the runs in `output`, a path or URL, that trained a model, newest first."""
    records = open_output(output, RECORDS).folder
    for number, run in reversed([*enumerate(read_records(records), 1)]):
        if TRAINER.id in run.steps and "model" in run.steps[TRAINER.id].outputs:
            yield number, run


def _find_trained(run: RunRecord) -> str:
    return os.path.join(run.steps[TRAINER.id].outputs["model"].uri, SERVING_FOLDER)


def _is_model(folder: str) -> bool:
    return GRAPH in list_names(folder)


def find_model(output: str, wanted: str | None) -> str:
    """Return the folder of a version pushed in `output`, the newest for None, or of a SavedModel.

    Raises:
        ModelError: there is no such model.
    """
    if wanted and not wanted.isdigit():
        wanted = wanted.removeprefix("file://") if wanted.startswith("file:///") else wanted
        if not _is_model(wanted):
            raise ModelError(f"{wanted} is not a model: it is not a folder with {GRAPH}.")
        return wanted.rstrip("/")
    return find_version(Layout(output).pushed, wanted or None)


def find_version(pushed: str, wanted: str | None = None) -> str:
    """Return the newest complete version in a folder, a path or URL, or the version `wanted`.

    Raises:
        ModelError: there is no such version.
        StorageError: the folder cannot be listed.
    """
    versions = [*whole_versions(pushed)]
    for path in versions:
        if wanted in (None, os.path.basename(path)):
            return path
    if not versions:
        raise ModelError(
            f"There is no model in {pushed}: run the pipeline until one is blessed, use the model "
            f"of the newest run with --unblessed, or set --output to the output folder of a run."
        )
    raise ModelError(
        f"There is no version {wanted} in {pushed}. There are "
        f"{name_some([*map(os.path.basename, versions)], _MOST_NAMED)}."
    )


def find_options(config: Config, model: str) -> FileOptions:
    """Return how ingest read and stored the images that a model was trained on.

    Options that the user sets override the record of the run; without a record, as for a model from
    elsewhere, the configuration applies.
    """
    fields = {
        field.name: getattr(config.ingest, field.name) for field in dataclasses.fields(FileOptions)
    }
    for name, value in _find_recorded(config.output, model).items():
        # The number of threads is of the training machine.
        if name in fields and name != "threads" and f"ingest.{name}" not in config.given:
            fields[name] = value
    return FileOptions(**fields)


def _find_recorded(output: str, model: str) -> dict[str, Any]:
    """Return the ingest options of the first run that pushed a model, or of one that trained it."""
    if not on_disk(model):
        return {}
    pushed, version = os.path.split(os.path.abspath(model))
    if os.path.realpath(pushed) == os.path.realpath(Layout(output).pushed):
        push = find_push(output, version, records=open_output(output, RECORDS).folder)
        run = push.record if push else None
    else:
        place = os.path.abspath(model)
        run = next((run for _, run in _list_trained(output) if _find_trained(run) == place), None)
    return dict(run.configuration.get("ingest", {})) if run else {}


def find_labels(output: str) -> tuple[str, frozenset[str]]:
    """Return the version in use and its labels; none if there is no version or no record of it."""
    newest = next(whole_versions(Layout(output).pushed), None)
    version = os.path.basename(newest or "")
    run = find_push(output, version) if newest else None
    if run is None:
        return "", frozenset()
    try:
        labels = read_index(run.find_artifact(EXAMPLE_GEN.id, "examples"))["labels"]
    except (UserError, OSError, ValueError, LookupError):
        return version, frozenset()
    return version, frozenset(label for counts in labels.values() for label in counts)

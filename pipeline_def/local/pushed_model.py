"""Finds a pushed model, and how ingest stored the images that it was trained on."""

import dataclasses
import os
from typing import Any, Literal

from components.contract.artifact_files import list_names, on_disk
from components.contract.error_messages import did_you_mean
from components.contract.errors import ModelError, UserError
from components.images.options import FileOptions
from components.records.shard_files import read_index
from components.storage.saved_model import GRAPH, original_version, whole_versions
from pipeline_def.config.config import Config
from pipeline_def.layout import Layout
from pipeline_def.local.output.folder import RECORDS, open_output
from pipeline_def.runs.history import SelectedRun
from pipeline_def.runs.record import read_records
from pipeline_def.steps import EXAMPLE_GEN

_MOST_NAMED = 5
# Settings of the predicting machine, not of the training machine.
_OF_THIS_MACHINE = frozenset({"threads"})


def _is_model(folder: str) -> bool:
    return GRAPH in list_names(folder)


def find_model(output: str, wanted: str | None) -> str:
    """Return the folder of a version pushed in `output`, the newest for None, or of a SavedModel.

    Raises:
        ModelError: there is no such model.
    """
    pushed = Layout(output).pushed
    if wanted and not wanted.isdigit():
        wanted = wanted.removeprefix("file://") if wanted.startswith("file:///") else wanted
        if not _is_model(wanted):
            raise ModelError(f"{wanted} is not a model: it is not a folder with {GRAPH}.")
        return wanted.rstrip("/")
    versions = []
    for path in whole_versions(pushed):
        version = os.path.basename(path)
        if not wanted or version == wanted:
            return path
        versions.append(version)
    if not versions:
        raise ModelError(
            f"There is no model in {pushed}: run the pipeline until one is blessed, or set "
            f"--output to the output folder of a run, or --model to a SavedModel."
        )
    newest, older = versions[:_MOST_NAMED], len(versions[_MOST_NAMED:])
    more = f" and {older} older ones" if older else ""
    raise ModelError(
        f"There is no version {wanted} in {pushed}. There are {', '.join(newest)}{more}."
        f"{did_you_mean(wanted or '', versions)}"
    )


def find_options(config: Config, model: str) -> FileOptions:
    """Return how ingest read and stored the images that a model was trained on.

    Options that the user sets override the record of the run; without a record, as for a model from
    elsewhere, the configuration applies.
    """
    recorded = _find_recorded(config.output, model)
    fields = {}
    for name in (field.name for field in dataclasses.fields(FileOptions)):
        is_set = (
            name in _OF_THIS_MACHINE or f"ingest.{name}" in config.given or name not in recorded
        )
        fields[name] = getattr(config.ingest, name) if is_set else recorded[name]
    return FileOptions(**fields)


def find_color(output: str, version: str) -> Literal["srgb", "stored"]:
    """Return `ingest.color` of the run that pushed a version; the default without a record."""
    recorded = _find_recorded(output, os.path.join(Layout(output).pushed, version))
    return "srgb" if recorded.get("color") == "srgb" else "stored"


def _find_recorded(output: str, model: str) -> dict[str, Any]:
    """Return the ingest options of the first run that pushed a model."""
    pushed, version = os.path.split(os.path.abspath(model))
    ours = os.path.realpath(Layout(output).pushed)
    if not on_disk(model) or os.path.realpath(pushed) != ours:
        return {}
    run = find_run(output, version)
    return dict(run.record.configuration.get("ingest", {})) if run else {}


def find_run(output: str, version: str) -> SelectedRun | None:
    """Return the first run that pushed the model of a version in `output`, a path or URL."""
    version = original_version(os.path.join(Layout(output).pushed, version))
    if not on_disk(output):
        output = open_output(Config(output=output), RECORDS)[0].output
    for number, run in enumerate(read_records(output), 1):
        if run.pushed and run.pushed.version == version:
            return SelectedRun(run, output, number)
    return None


def find_labels(output: str) -> tuple[str, frozenset[str]]:
    """Return the version in use and its labels; none if there is no version or no record of it."""
    newest = next(whole_versions(Layout(output).pushed), None)
    version = os.path.basename(newest or "")
    run = find_run(output, version) if newest else None
    if run is None:
        return "", frozenset()
    try:
        labels = read_index(run.find_artifact(EXAMPLE_GEN.id, "examples"))["labels"]
    except (UserError, OSError, ValueError, LookupError):
        return version, frozenset()
    return version, frozenset(label for counts in labels.values() for label in counts)

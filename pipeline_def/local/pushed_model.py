"""The pushed model that a person means, and how ingest stored the images that it was made from."""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Collection
from typing import Any

from components.contract.errors import ModelError
from components.images.options import FileOptions
from components.storage.artifact_files import list_names, on_disk
from components.storage.saved_model import GRAPH, whole_versions
from pipeline_def.config.config import Config
from pipeline_def.layout import Layout
from pipeline_def.runs.record import read_records

_MOST_NAMED = 5
# Of the machine that asks, not of the one that has made the model.
_OF_THIS_MACHINE = frozenset({"threads", "requests"})


def list_versions(pushed: str) -> list[str]:
    """Return the whole versions in the folder of pushed models, the newest last.

    TensorFlow is not loaded for a folder on this machine.
    """
    return [os.path.basename(path) for path in whole_versions(pushed)][::-1]


def _is_model(folder: str) -> bool:
    return GRAPH in list_names(folder)


def find_model(output: str, wanted: str | None) -> str:
    """Return the folder of a model.

    Args:
        output: folder of the runs.
        wanted: a version that was pushed there, or any folder of a SavedModel, a path or URL;
            None: the newest version.

    Raises:
        ModelError: there is no such model.
    """
    pushed = Layout(output).pushed
    if wanted and not wanted.isdigit():
        if not _is_model(wanted):
            raise ModelError(f"{wanted} is no model: it is not a folder with {GRAPH} in it.")
        return wanted.rstrip("/")
    versions = list_versions(pushed)
    if not versions:
        raise ModelError(
            f"There is no model in {pushed}: run the pipeline until one is blessed, or name the "
            f"output folder of a run with --output, or a SavedModel with --model."
        )
    if wanted and wanted not in versions:
        raise ModelError(f"There is no version {wanted} in {pushed}: {_suggest(wanted, versions)}.")
    return os.path.join(pushed, wanted or versions[-1])


def _suggest(wanted: str, versions: list[str]) -> str:
    nearest = difflib.get_close_matches(wanted, versions, n=1)
    newest = versions[: -_MOST_NAMED - 1 : -1]
    more = f" and {len(versions) - len(newest)} older ones" if len(versions) > len(newest) else ""
    hint = f"did you mean {nearest[0]}? " if nearest else ""
    return f"{hint}{'There' if hint else 'there'} are {', '.join(newest)}{more}"


def find_options(config: Config, model: str) -> FileOptions:
    """Return how ingest read and stored the images that a model was made from.

    What the user has named goes before what the record of the run says; without a record, as of a
    model from elsewhere, the options of the configuration hold.
    """
    recorded = _find_recorded(config.output, model)
    fields = {}
    for name in (field.name for field in dataclasses.fields(FileOptions)):
        own = _is_own(name, config.given) or name not in recorded
        fields[name] = getattr(config.ingest, name) if own else recorded[name]
    return FileOptions(**fields)


def _is_own(name: str, given: Collection[str]) -> bool:
    return name in _OF_THIS_MACHINE or f"ingest.{name}" in given


def _find_recorded(output: str, model: str) -> dict[str, Any]:
    """Return the options of ingest of the first run that has pushed a model."""
    pushed, version = os.path.split(os.path.abspath(model))
    ours = os.path.realpath(Layout(output).pushed)
    if not on_disk(model) or os.path.realpath(pushed) != ours:
        return {}
    for record in read_records(output):
        if record.pushed and record.pushed.version == version:
            recorded: dict[str, Any] = record.configuration.get("ingest", {})
            return recorded
    return {}

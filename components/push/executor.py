"""The executor of ImagePusher: it pushes a version atomically and once, whatever is killed."""

import contextlib
import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator
from typing import Any

from tfx.components.pusher import executor
from tfx.dsl.io import fileio
from tfx.proto import pusher_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import io_utils, proto_utils

from components.contract.artifacts import Artifacts
from components.contract.model_files import (
    LABELS_FILE,
    LITE_FOLDER,
    LITE_PROPERTY,
    MANIFEST_FILE,
    PUSHED_LITE,
    lite_file,
)
from components.storage.artifact_files import on_disk
from components.storage.folder_listing import find_files
from components.storage.lock import locked
from components.storage.saved_model import (
    FILES,
    GRAPH,
    WEIGHTS,
    list_versions,
    model_digest,
    whole_versions,
)
from components.storage.tfx_filesystem import CARD_FILE, read_text, register_object_stores

PUSHED_CARD = "MODEL_CARD.md"
"""Name of the card beside `saved_model.pb`."""

# Model servers ignore names that are not numbers.
_STAGED = ".unfinished"


class Executor(executor.Executor):
    """Pushes atomically, skips a model that is already the newest version, and adds the card."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Push a blessed model with its LiteRT versions and its card.

        If the newest version already holds the same model, no new version is made: only the card
        may have changed, an earlier run may have been killed after the copy, or another run may
        have pushed it in the meantime.
        """
        register_object_stores()
        pushed = artifact_utils.get_single_instance(
            output_dict[standard_component_specs.PUSHED_MODEL_KEY]
        )
        if not self.CheckBlessing(input_dict):
            self._MarkNotPushed(pushed)
            return
        # Read the card first: if that fails, the model must not be pushed.
        text = _read_card(input_dict)
        model = self.GetModelPath(input_dict)
        io_utils.copy_dir(model, pushed.uri)
        version = push_model(model, _find_folder(exec_properties))
        if text is not None:
            _write_card(text, version)
        _update_lite(input_dict, version)
        self._MarkPushed(pushed, version, os.path.basename(version))


def _find_folder(exec_properties: dict[str, Any]) -> str:
    """Return the folder of the versions."""
    destination = pusher_pb2.PushDestination()
    proto_utils.json_to_proto(
        exec_properties[standard_component_specs.PUSH_DESTINATION_KEY], destination
    )
    folder: str = destination.filesystem.base_directory
    return folder


def _read_card(input_dict: Artifacts) -> str | None:
    """Read the model card; None if the pipeline has none."""
    if not input_dict.get("card"):
        return None
    return read_text(artifact_utils.get_single_uri(input_dict["card"]), CARD_FILE)


def _write_card(text: str, version: str) -> None:
    """Write or replace the card atomically."""
    unfinished = os.path.join(version, f".{PUSHED_CARD}")
    with fileio.open(unfinished, "w") as file:
        file.write(text)
    fileio.rename(unfinished, os.path.join(version, PUSHED_CARD), overwrite=True)


def _update_lite(input_dict: Artifacts, version: str) -> None:
    """Make the LiteRT folder of the version hold the accepted versions and what describes them.

    An earlier run may have pushed the same model with versions that are refused now.
    """
    blessing = artifact_utils.get_single_instance(input_dict["model_blessing"])
    kinds = (blessing.get_string_custom_property(LITE_PROPERTY) or "").split(",")
    files = {lite_file(kind) for kind in kinds if kind}
    target = os.path.join(version, PUSHED_LITE)
    if not files:
        if fileio.isdir(target):
            fileio.rmtree(target)
        return
    source = os.path.join(artifact_utils.get_single_uri(input_dict["model"]), LITE_FOLDER)
    fileio.makedirs(target)
    files |= {LABELS_FILE, MANIFEST_FILE}
    for name in sorted(files):
        fileio.copy(os.path.join(source, name), os.path.join(target, name), overwrite=True)
    for name in {entry.rstrip("/") for entry in fileio.listdir(target)} - files:
        fileio.remove(os.path.join(target, name))


def push_model(model: str, folder: str) -> str:
    """Push `model` to `folder` unless it is the newest version; return the path of the version.

    Args:
        model: folder of the SavedModel.
        folder: folder of the versions, a path or URL.
    """
    with _exclusive(folder):
        newest = next(whole_versions(folder), None)
        if newest and model_digest(newest) == model_digest(model):
            return newest
        if on_disk(folder):
            return _copy_and_rename(model, folder)
        return _copy_in_order(model, folder)


@contextlib.contextmanager
def _exclusive(folder: str) -> Iterator[None]:
    """Keep other processes from pushing to a local folder; object stores have no locks."""
    if not on_disk(folder):
        yield
        return
    os.makedirs(folder, exist_ok=True)
    with locked(f"{folder.rstrip('/')}.lock", folder, say=logging.warning):
        yield


def _copy_and_rename(model: str, folder: str) -> str:
    """Copy to a hidden folder, then rename it to the version."""
    staged = os.path.join(folder, _STAGED)
    if fileio.exists(staged):
        fileio.rmtree(staged)
    io_utils.copy_dir(model, staged)
    _write_files(model, staged)
    version = _next_version(folder)
    os.rename(staged, version)
    return version


def _copy_in_order(model: str, folder: str) -> str:
    """Copy to a store, which has no atomic rename; a version without its graph is incomplete.

    The checksums of the weights are copied first, to recognize an unfinished copy of this model.
    """
    version = _find_unfinished(model, folder)
    for path in sorted(_list_files(model), key=lambda path: (path != WEIGHTS, path == GRAPH)):
        source, target = (os.path.join(root, path) for root in (model, version))
        if path == GRAPH:
            _write_files(model, version)
        io_utils.copy_file(source, target, overwrite=True)
    return version


def _write_files(model: str, version: str) -> None:
    """Record the files of the model in its copy, so that later damage is noticed."""
    recorded = {}
    for path in _list_files(model):
        if path != FILES:
            content = io_utils.read_bytes_file(os.path.join(model, path))
            recorded[path] = (len(content), hashlib.sha256(content).hexdigest())
    io_utils.write_string_file(os.path.join(version, FILES), json.dumps(recorded))


def _list_files(folder: str) -> list[str]:
    """Return the sorted relative paths of all files in a folder."""
    return [file.path for file in find_files(folder) if not file.problem]


def _find_unfinished(model: str, folder: str) -> str:
    """Return the newest version if it is an unfinished copy of the model, else a new version."""
    newest = next(iter(list_versions(folder)), "")
    weights, graph = (os.path.join(newest, name) for name in (WEIGHTS, GRAPH))
    unfinished = newest and fileio.exists(weights) and not fileio.exists(graph)
    ours = os.path.join(model, WEIGHTS)
    if unfinished and io_utils.read_bytes_file(weights) == io_utils.read_bytes_file(ours):
        return newest
    return _next_version(folder)


def _next_version(folder: str) -> str:
    """Return a path whose name is the Unix time, as TFX's, or larger than those of all versions."""
    newest = next(iter(list_versions(folder)), "0")
    return os.path.join(folder, str(max(int(time.time()), int(os.path.basename(newest)) + 1)))

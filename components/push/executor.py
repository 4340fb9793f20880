"""The executor of ImagePusher."""

from __future__ import annotations

import os
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
    PUSHED_LITE,
    lite_file,
)
from components.push.versions import push_model
from components.storage.tfx_filesystem import CARD_FILE, read_text, register_object_stores

PUSHED_CARD = "MODEL_CARD.md"
"""Its name beside `saved_model.pb`."""


class Executor(executor.Executor):
    """Pushes as TFX does, but whole, no model twice in a row, and with the card beside it."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Push a blessed model, its small versions and its card; do nothing for any other.

        The newest version stays the newest when it holds the same model already, be it that only
        the card has changed, that an earlier run was killed after the copy, or that another run has
        pushed it in the meantime.
        """
        register_object_stores()
        pushed = artifact_utils.get_single_instance(
            output_dict[standard_component_specs.PUSHED_MODEL_KEY]
        )
        if not self.CheckBlessing(input_dict):
            self._MarkNotPushed(pushed)
            return
        # First, so that a card that cannot be read keeps its model from being pushed.
        text = _read_card(input_dict)
        model = self.GetModelPath(input_dict)
        io_utils.copy_dir(model, pushed.uri)
        version = push_model(model, _find_folder(exec_properties))
        if text is not None:
            _write_card(text, version)
        _copy_lite(input_dict, version)
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
    """Read the model card; None where the pipeline makes none."""
    if not input_dict.get("card"):
        return None
    return read_text(artifact_utils.get_single_uri(input_dict["card"]), CARD_FILE)


def _write_card(text: str, version: str) -> None:
    """Write the card, or replace that of an earlier report in one step."""
    unfinished = os.path.join(version, f".{PUSHED_CARD}")
    with fileio.open(unfinished, "w") as file:
        file.write(text)
    fileio.rename(unfinished, os.path.join(version, PUSHED_CARD), overwrite=True)


def _copy_lite(input_dict: Artifacts, version: str) -> None:
    """Copy the small versions that are good enough, and their labels, into the model's folder."""
    blessing = artifact_utils.get_single_instance(input_dict["model_blessing"])
    kinds = blessing.get_string_custom_property(LITE_PROPERTY) or ""
    if not kinds:
        return
    source = os.path.join(artifact_utils.get_single_uri(input_dict["model"]), LITE_FOLDER)
    target = os.path.join(version, PUSHED_LITE)
    fileio.makedirs(target)
    for name in (*map(lite_file, kinds.split(",")), LABELS_FILE):
        fileio.copy(os.path.join(source, name), os.path.join(target, name), overwrite=True)

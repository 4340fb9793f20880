"""The executor of ImagePusher: it pushes a version atomically and once, whatever is killed."""

import logging
import os
from typing import Any

from tfx.components.pusher import executor
from tfx.proto import pusher_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import proto_utils

from components.contract.artifact_files import CARD_FILE, read_text
from components.contract.model_files import (
    FORMATS_FOLDER,
    FORMATS_PROPERTY,
    GOLDEN_FOLDER,
    LABELS_FILE,
    MANIFEST_FILE,
    PUSHED_CARD,
    PUSHED_FORMATS,
    format_file,
)
from components.contract.properties import TRAINING_KEY_PROPERTY
from components.contract.tfx_classes import Artifacts
from components.push.versions import WithdrawnError, push_model
from components.storage.folder import replace_file
from components.storage.folder_listing import find_files
from components.storage.saved_model import note_candidate
from components.storage.transfer import copy_file, copy_folder, remove_file, remove_folder


class Executor(executor.Executor):
    """Pushes atomically, skips a model that is already the newest version, and adds the card."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Push a blessed model with its exports and its card.

        If the newest version already holds the same model, no new version is made: only the card
        may have changed, an earlier run may have been killed after the copy, or another run may
        have pushed it in the meantime. A model that a rollback withdrew is not pushed again.
        """
        destination = pusher_pb2.PushDestination()
        destination_json = exec_properties[standard_component_specs.PUSH_DESTINATION_KEY]
        proto_utils.json_to_proto(destination_json, destination)
        folder = destination.filesystem.base_directory
        version = self._push(input_dict, output_dict, folder)
        if key := exec_properties.get(TRAINING_KEY_PROPERTY):
            model = self.GetModelPath(input_dict)
            note_candidate(folder, key, model, os.path.basename(version))

    def _push(self, input_dict: Artifacts, output_dict: Artifacts, folder: str) -> str:
        """Push the model to `folder`; return the path of the version, "" if it is not pushed."""
        pushed = artifact_utils.get_single_instance(
            output_dict[standard_component_specs.PUSHED_MODEL_KEY]
        )
        if not self.CheckBlessing(input_dict):
            self._MarkNotPushed(pushed)
            return ""
        # Read the card first: if that fails, the model must not be pushed.
        cards = input_dict.get("card")
        text = read_text(artifact_utils.get_single_uri(cards), CARD_FILE) if cards else None
        model = self.GetModelPath(input_dict)
        copy_folder(model, pushed.uri)
        try:
            version = push_model(model, folder)
        except WithdrawnError as error:
            logging.warning("%s", error)
            self._MarkNotPushed(pushed)
            return ""
        if text is not None:
            replace_file(os.path.join(version, PUSHED_CARD), text.encode())
        _update_formats(input_dict, version)
        self._MarkPushed(pushed, version, os.path.basename(version))
        return version


def _update_formats(input_dict: Artifacts, version: str) -> None:
    """Make the version hold the accepted exports and what describes them.

    An earlier run may have pushed the same model with exports that are refused now.
    """
    blessing = artifact_utils.get_single_instance(input_dict["model_blessing"])
    kinds = (blessing.get_string_custom_property(FORMATS_PROPERTY) or "").split(",")
    files = {format_file(kind) for kind in kinds if kind}
    target = os.path.join(version, PUSHED_FORMATS)
    if not files:
        remove_folder(target)
        return
    source = os.path.join(artifact_utils.get_single_uri(input_dict["model"]), FORMATS_FOLDER)
    golden = find_files(os.path.join(source, GOLDEN_FOLDER))
    files |= {LABELS_FILE, MANIFEST_FILE, *(f"{GOLDEN_FOLDER}/{file.path}" for file in golden)}
    for name in sorted(files):
        copy_file(os.path.join(source, name), os.path.join(target, name))
    for name in {file.path for file in find_files(target)} - files:
        remove_file(os.path.join(target, name))

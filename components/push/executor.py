"""The executor of ImagePusher."""

from __future__ import annotations

import os
from typing import Any

from tfx import types
from tfx.components.pusher import executor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils, standard_component_specs

from components.storage.text_artifact import CARD_FILE, read_text
from components.storage.tfx_filesystem import register_object_stores

PUSHED_CARD = "MODEL_CARD.md"
"""Its name beside `saved_model.pb`."""


class Executor(executor.Executor):
    """Pushes as TFX does, and then writes the card."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Push a blessed model and its card; do nothing for any other."""
        register_object_stores()
        card = artifact_utils.get_single_instance(input_dict["card"])
        # First, so that a card that cannot be read keeps its model from being pushed.
        text = read_text(card.uri, CARD_FILE)
        super().Do(input_dict, output_dict, exec_properties)
        key = standard_component_specs.PUSHED_MODEL_KEY
        pushed = artifact_utils.get_single_instance(output_dict[key])
        if pushed.get_int_custom_property("pushed"):
            destination = pushed.get_string_custom_property("pushed_destination")
            with fileio.open(os.path.join(destination, PUSHED_CARD), "w") as file:
                file.write(text)

"""ImagePusher: TFX's Pusher, which puts the model card into the folder of the pushed model."""

from __future__ import annotations

import os
from typing import Any

from tfx import types
from tfx.components.pusher import component, executor
from tfx.dsl.components.base import executor_spec
from tfx.dsl.io import fileio
from tfx.proto import pusher_pb2
from tfx.types import artifact_utils, component_spec, standard_artifacts, standard_component_specs

from components.object_store import register_object_stores
from components.ui_artifacts import CARD_FILE, Markdown, read_text

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


class ImagePusherSpec(component_spec.ComponentSpec):
    """Pusher's contract, with the card."""

    PARAMETERS = standard_component_specs.PusherSpec.PARAMETERS
    INPUTS = {
        **standard_component_specs.PusherSpec.INPUTS,
        "card": component_spec.ChannelParameter(type=Markdown),
    }
    OUTPUTS = standard_component_specs.PusherSpec.OUTPUTS


class ImagePusher(component.Pusher):
    """Pushes a blessed model to a folder, a version each, with `MODEL_CARD.md` in it.

    TensorFlow Serving and `find_baseline` look at `saved_model.pb` and the variables alone.

    Outputs:
        pushed_model: `PushedModel`, with the properties `pushed`, `pushed_destination` and
            `pushed_version`.
    """

    SPEC_CLASS = ImagePusherSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        *,
        model: types.BaseChannel,
        model_blessing: types.BaseChannel,
        card: types.BaseChannel,
        push_destination: pusher_pb2.PushDestination,
    ) -> None:
        """Take Trainer's model, ImageEvaluator's blessing and ImageReport's card."""
        spec = ImagePusherSpec(
            model=model,
            model_blessing=model_blessing,
            card=card,
            push_destination=push_destination,
            # Pusher would write the same.
            custom_config="null",
            pushed_model=types.Channel(type=standard_artifacts.PushedModel),
        )
        # Pusher builds TFX's own spec; ours goes to the constructor above it.
        super(component.Pusher, self).__init__(spec=spec)

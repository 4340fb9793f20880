"""ImagePusher: TFX's Pusher that adds the model card to the pushed model."""

from tfx import types
from tfx.components.pusher import component
from tfx.dsl.components.base import executor_spec
from tfx.proto import pusher_pb2
from tfx.types import component_spec, standard_artifacts, standard_component_specs

from components.contract.tfx_classes import Markdown
from components.push.executor import Executor


class ImagePusherSpec(component_spec.ComponentSpec):
    """Pusher's spec with the card."""

    PARAMETERS = standard_component_specs.PusherSpec.PARAMETERS
    INPUTS = {
        **standard_component_specs.PusherSpec.INPUTS,
        "card": component_spec.ChannelParameter(type=Markdown, optional=True),
    }
    OUTPUTS = standard_component_specs.PusherSpec.OUTPUTS


class ImagePusher(component.Pusher):
    """Pushes a blessed model as a new version to a folder, with its `MODEL_CARD.md`.

    TensorFlow Serving and `find_baseline` only read `saved_model.pb` and the variables.

    Example:
        >>> from components import ImagePusher
        >>> from tfx.dsl.components.common.importer import Importer
        >>> from tfx.proto.pusher_pb2 import PushDestination
        >>> from tfx.types.standard_artifacts import Model, ModelBlessing
        >>> model = Importer(source_uri="trained/1", artifact_type=Model)
        >>> blessing = Importer(source_uri="blessings/1", artifact_type=ModelBlessing)
        >>> pusher = ImagePusher(
        ...     model=model.outputs["result"],
        ...     model_blessing=blessing.outputs["result"],
        ...     push_destination=PushDestination(
        ...         filesystem=PushDestination.Filesystem(base_directory="pushed")
        ...     ),
        ... )
        >>> sorted(pusher.outputs)
        ['pushed_model']

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
        push_destination: pusher_pb2.PushDestination,
        card: types.BaseChannel | None = None,
    ) -> None:
        """Push `model` if it is blessed.

        Args:
            model: model of ImageTrainer.
            model_blessing: blessing of ImageEvaluator.
            push_destination: folder of the versions.
            card: card of ImageReport; None: do not write `MODEL_CARD.md`.
        """
        spec = ImagePusherSpec(
            model=model,
            model_blessing=model_blessing,
            card=card,
            push_destination=push_destination,
            # The value that Pusher writes.
            custom_config="null",
            pushed_model=types.Channel(type=standard_artifacts.PushedModel),
        )
        # Pusher's constructor builds TFX's spec, so skip it and pass ours to its base class.
        super(component.Pusher, self).__init__(spec=spec)

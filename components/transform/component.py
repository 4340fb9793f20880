"""ImageTransform: TFX's Transform analyses; the transformed records are written shard by shard.

TFX writes Transform's output as one gzip file per split with one worker, after moving every image
through Beam. Here a Beam element is the path of a shard, and each input shard becomes one
uncompressed output shard with its records in the same order.
"""

from __future__ import annotations

import dataclasses

from tfx import types
from tfx.components.transform import component
from tfx.dsl.components.base import executor_spec

from components.contract.configuration import to_dict
from components.transform.config import TransformConfig
from components.transform.executor import Executor
from components.transform.preprocessing import preprocessing_fn

# What a local run takes for photographs without pretrained weights.
_USUAL_SIZE = 96


class ImageTransform(component.Transform):
    """TFX's Transform with uncompressed, interleavable output shards and an index of them.

    The examples are those of ImageExampleGen, or any with `image/encoded`, one image file, and
    `image/class/text`, its label.

    Example:
        >>> from components import ImageExampleGen, ImageTransform, TransformConfig
        >>> from tfx.dsl.components.common.importer import Importer
        >>> from tfx.types.standard_artifacts import Schema
        >>> example_gen = ImageExampleGen(folder="photos")
        >>> schema = Importer(source_uri="reviewed_schema", artifact_type=Schema)
        >>> transform = ImageTransform(
        ...     examples=example_gen.outputs["examples"],
        ...     schema=schema.outputs["result"],
        ...     config=TransformConfig(size=224, fit="letterbox"),
        ... )
        >>> sorted(transform.outputs)
        ['transform_graph', 'transformed_examples']

    Outputs:
        transform_graph: `TransformGraph`, with the vocabulary of the labels.
        transformed_examples: `Examples`, as many shards as there were, uncompressed, with
            `index.json` and the place of every image.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(
        self,
        *,
        examples: types.BaseChannel,
        schema: types.BaseChannel,
        config: TransformConfig | None = None,
    ) -> None:
        """Bring the images of `examples` to the form that `config` describes.

        Args:
            examples: to transform, with a split `train`.
            schema: of the examples.
            config: form of the images; without a size they become 96 x 96 pixels.
        """
        config = config or TransformConfig()
        if config.size is None:
            config = dataclasses.replace(config, size=_USUAL_SIZE)
        super().__init__(
            examples=examples,
            schema=schema,
            preprocessing_fn=f"{preprocessing_fn.__module__}.{preprocessing_fn.__name__}",
            disable_statistics=True,
            disable_analyzer_cache=True,
            custom_config=to_dict(config),
        )

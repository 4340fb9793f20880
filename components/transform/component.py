"""ImageTransform: TFX's Transform, whose records are transformed shard by shard.

TFX moves every image through Beam and writes one gzip file per split and worker. Here a Beam
element is the path of a shard, and each input shard becomes one uncompressed output shard with the
records in the same order.
"""

import dataclasses

from tfx import types
from tfx.components.transform import component
from tfx.dsl.components.base import executor_spec

from components.contract.configuration import to_dict
from components.images.options import TransformConfig
from components.transform.executor import Executor, preprocessing_fn

# The local runner's choice for photographs.
_USUAL_SIZE = 224


class ImageTransform(component.Transform):
    """TFX's Transform with uncompressed, interleavable output shards and an index of them.

    It takes the examples of ImageExampleGen.

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
        transformed_examples: `Examples`, an uncompressed shard for each input shard, with
            `index.json` and the offset of every image.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(
        self,
        *,
        examples: types.BaseChannel,
        schema: types.BaseChannel,
        config: TransformConfig | None = None,
    ) -> None:
        """Bring the images of `examples` to the form of `config`, by default 224 x 224 pixels.

        The served graph shrinks images as ImageExampleGen did: as `index.json` beside the shards
        says.
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

"""ImageExampleGen: convert a folder of labeled images to sharded `tf.train.Example` records.

Extends TFX's file-based ExampleGen with a driver that fingerprints a listing, an executor whose
Beam elements are shards, not images, and a second output, the rejected files.
"""

from typing import Any

from tfx import types
from tfx.components.example_gen import component as example_gen
from tfx.components.example_gen import driver
from tfx.dsl.components.base import executor_spec
from tfx.proto import example_gen_pb2
from tfx.types import component_spec, standard_artifacts, standard_component_specs

from components.contract.configuration import to_json
from components.contract.properties import EXAMPLES_KEY_PROPERTY
from components.contract.tfx_classes import ImageRejects
from components.ingest.config import IngestConfig
from components.ingest.executor import Executor
from components.ingest.lookup import LISTING_PROPERTY, look_up


class ImageExampleGenSpec(component_spec.ComponentSpec):
    """Adds the ingest configuration and the rejects to file-based ExampleGen's spec."""

    PARAMETERS = {
        **standard_component_specs.FileBasedExampleGenSpec.PARAMETERS,
        "config": component_spec.ExecutionParameter(type=str),
        "listings": component_spec.ExecutionParameter(type=str),
        LISTING_PROPERTY: component_spec.ExecutionParameter(type=str, optional=True),
        EXAMPLES_KEY_PROPERTY: component_spec.ExecutionParameter(type=str, optional=True),
    }
    INPUTS: dict[str, Any] = {}
    OUTPUTS = {
        **standard_component_specs.FileBasedExampleGenSpec.OUTPUTS,
        "rejects": component_spec.ChannelParameter(type=ImageRejects),
    }


class Driver(driver.Driver):
    """Lists the folder before the cache lookup, which TFX keys by the resolved properties."""

    lookup_function = staticmethod(look_up)
    lookup_properties = ("input_base", "config", "listings", "code_digest")
    lookup_inputs: tuple[str, ...] = ()

    def resolve_exec_properties(
        self, exec_properties: dict[str, Any], *_: Any, **__: Any
    ) -> dict[str, Any]:
        """Add what the lookup finds, and cut `config` to what counts."""
        return {**exec_properties, **look_up({}, exec_properties)}


class ImageExampleGen(example_gen.FileBasedExampleGen):
    """Converts a folder of `label/image` or `split/label/image` files into TFRecord shards.

    The folder is a path or a URL, and may contain TFX's placeholders `{SPAN}`, `{VERSION}`,
    `{YYYY}`, `{MM}` and `{DD}`.

    Example:
        >>> from components import ImageExampleGen
        >>> example_gen = ImageExampleGen(folder="photos")
        >>> sorted(example_gen.outputs)
        ['examples', 'rejects']

    Outputs:
        examples: `Examples`, uncompressed shards in `Split-<name>` folders, and `index.json`.
        rejects: `ImageRejects`, `rejects.jsonl`, `skipped.jsonl`, `duplicates.jsonl`,
            `near_duplicates.jsonl` and `summary.json`; with corrections `corrections.jsonl`.
    """

    SPEC_CLASS = ImageExampleGenSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
    DRIVER_CLASS = Driver

    def __init__(
        self,
        *,
        folder: str,
        config: IngestConfig | None = None,
        listings: str = "",
        listing: str = "",
    ) -> None:
        """Ingest `folder`.

        Args:
            folder: path or URL of the images.
            config: options of ingest; None: `IngestConfig()`.
            listings: folder in which the driver leaves its listing for the executor. If empty, the
                executor lists the images again, and may find others than were fingerprinted.
            listing: file in this folder that `write_listing` has just written. If empty, the driver
                lists the images.
        """
        spec = ImageExampleGenSpec(
            input_base=folder,
            input_config=example_gen_pb2.Input(
                splits=[example_gen_pb2.Input.Split(name="all", pattern="**")]
            ),
            output_config=example_gen_pb2.Output(),
            output_data_format=example_gen_pb2.FORMAT_TF_EXAMPLE,
            output_file_format=example_gen_pb2.FORMAT_TFRECORDS_GZIP,
            config=to_json(config or IngestConfig()),
            listings=listings,
            **({LISTING_PROPERTY: listing} if listing else {}),
            examples=types.Channel(type=standard_artifacts.Examples),
            rejects=types.Channel(type=ImageRejects),
        )
        # FileBasedExampleGen would build TFX's own spec, so its constructor is skipped.
        super(example_gen.FileBasedExampleGen, self).__init__(spec=spec)

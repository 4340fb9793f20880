"""ImageExampleGen: a folder of labelled images becomes sharded `tf.train.Example` records.

Extends TFX's file-based ExampleGen with its own driver (a listing, whose fingerprint sees moved
files), its own executor (a Beam element is a shard, never an image) and a second output, the
rejected files.
"""

from __future__ import annotations

from typing import Any

from tfx import types
from tfx.components.example_gen import component as example_gen
from tfx.components.example_gen import driver
from tfx.dsl.components.base import executor_spec
from tfx.proto import example_gen_pb2
from tfx.types import component_spec, standard_artifacts, standard_component_specs

from components.contract.artifacts import ImageRejects
from components.contract.configuration import to_json
from components.ingest.config import IngestConfig
from components.ingest.executor import Executor
from components.ingest.lookup import LISTING_PROPERTY, look_up


class ImageExampleGenSpec(component_spec.ComponentSpec):
    """File-based ExampleGen's contract, with the ingest configuration and the rejects."""

    PARAMETERS = {
        **standard_component_specs.FileBasedExampleGenSpec.PARAMETERS,
        "config": component_spec.ExecutionParameter(type=str),
        "listings": component_spec.ExecutionParameter(type=str),
        LISTING_PROPERTY: component_spec.ExecutionParameter(type=str, optional=True),
    }
    INPUTS: dict[str, Any] = {}
    OUTPUTS = {
        **standard_component_specs.FileBasedExampleGenSpec.OUTPUTS,
        "rejects": component_spec.ChannelParameter(type=ImageRejects),
    }


class Driver(driver.Driver):
    """Lists the folder before the cache is looked up; TFX keys its cache by what it resolves."""

    lookup_function = staticmethod(look_up)
    lookup_properties = ("input_base", "config", "listings")
    lookup_inputs: tuple[str, ...] = ()

    def resolve_exec_properties(
        self, exec_properties: dict[str, Any], *_: Any, **__: Any
    ) -> dict[str, Any]:
        """Add `span`, `version`, `input_fingerprint` and `listing`."""
        return {**exec_properties, **look_up({}, exec_properties)}


class ImageExampleGen(example_gen.FileBasedExampleGen):
    """Converts a folder of `label/image` or `split/label/image` files into TFRecord shards.

    The folder is a path or a URL, and may have TFX's placeholders `{SPAN}`, `{VERSION}`, `{YYYY}`,
    `{MM}` and `{DD}`.

    Example:
        >>> from components import ImageExampleGen
        >>> example_gen = ImageExampleGen(folder="photos")
        >>> sorted(example_gen.outputs)
        ['examples', 'rejects']

    Outputs:
        examples: `Examples`, uncompressed shards in `Split-<name>` folders, and `index.json`.
        rejects: `ImageRejects`, `rejects.jsonl`, `skipped.jsonl`, `duplicates.jsonl` and
            `summary.json`.
    """

    SPEC_CLASS = ImageExampleGenSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
    DRIVER_CLASS = Driver

    def __init__(
        self, *, folder: str, config: IngestConfig | None = None, listings: str = ""
    ) -> None:
        """Ingest `folder` as `config` says.

        Args:
            folder: path or URL of the images.
            config: how they become records; None: `IngestConfig()`.
            listings: folder in which the driver leaves the listing that the executor reads. Empty:
                the executor lists the images again, and may find others than were fingerprinted.
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
            examples=types.Channel(type=standard_artifacts.Examples),
            rejects=types.Channel(type=ImageRejects),
        )
        # FileBasedExampleGen builds TFX's own spec; ours goes to the constructor above it.
        super(example_gen.FileBasedExampleGen, self).__init__(spec=spec)

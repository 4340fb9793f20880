"""ImageExampleGen: a folder of labelled images becomes sharded `tf.train.Example` records.

Extends TFX's file-based ExampleGen with its own driver (a fingerprint that sees moved files), its
own executor (a Beam element is a shard, never an image) and a second output, the rejected files.
"""

from __future__ import annotations

from typing import Any

import apache_beam as beam
from tfx import types
from tfx.components.example_gen import component as example_gen
from tfx.components.example_gen import driver, input_processor
from tfx.components.util import examples_utils
from tfx.dsl.components.base import base_beam_executor, executor_spec
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, component_spec, standard_artifacts, standard_component_specs

from components.ingest import (
    WriteShards,
    check_reports,
    labels_per_split,
    read_report,
    records_per_shard,
    write_rejects,
)
from components.ingest_config import IngestConfig
from components.listing import check_labels, list_images
from components.shards import plan_shards, write_index


class ImageRejects(types.Artifact):
    """The files that ingest did not use: one JSON object a line (`path`, `category`, `reason`)."""

    # Kubeflow Pipelines takes names of the form <namespace>.<Type> only.
    TYPE_NAME = "images.ImageRejects"


class _InputProcessor(input_processor.InputProcessor):
    """Lists the folder for the driver; TFX stores the fingerprint and keys its cache by it."""

    def __init__(self, folder: str, splits: Any) -> None:
        super().__init__(splits=splits, range_config=None)
        self._folder = folder

    def get_pattern_for_span_version(self, pattern: str, span: int, version: int | None) -> str:
        return pattern

    def get_latest_span(self) -> int:
        return 0

    def get_input_fingerprint(self, span: int, version: int | None) -> str:
        listing = list_images(self._folder)
        check_labels(listing)
        return listing.fingerprint()


class Driver(driver.FileBasedDriver):
    """Resolves the fingerprint of the folder before the cache is looked up."""

    def get_input_processor(
        self, splits: Any, range_config: Any = None, input_base_uri: str | None = None
    ) -> input_processor.InputProcessor:
        """Return the processor that lists `input_base_uri`."""
        return _InputProcessor(str(input_base_uri), splits)


class Executor(base_beam_executor.BaseBeamExecutor):
    """Checks every image once and writes the shards, their index and the rejects."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Ingest the folder `exec_properties["input_base"]`.

        Raises:
            UserError: too many rejects, or a class with no usable image to train on.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        examples = artifact_utils.get_single_instance(output_dict["examples"])
        folder = exec_properties["input_base"]
        config = IngestConfig.from_json(exec_properties["ingest"])
        listing = list_images(folder)
        check_labels(listing)
        plans = plan_shards(listing.files, config)
        with self._make_beam_pipeline() as pipeline:
            writer = WriteShards(folder, examples.uri, config, len(listing.files))
            _ = (
                pipeline
                | "Plans" >> beam.Create(plans, reshuffle=False)
                | "Spread" >> beam.Reshuffle()
                | "WriteShards" >> beam.ParDo(writer)
            )
        reports = [read_report(examples.uri, plan) for plan in plans]
        write_rejects(artifact_utils.get_single_uri(output_dict["rejects"]), reports, listing)
        check_reports(reports, listing, config)
        splits = records_per_shard(reports)
        write_index(examples.uri, splits, labels=labels_per_split(reports))
        examples.split_names = artifact_utils.encode_split_names(sorted(splits))
        examples_utils.set_payload_format(examples, example_gen_pb2.FORMAT_TF_EXAMPLE)
        # TFX has one name for TFRecord files; its readers tell gzip by the end of the file name.
        examples_utils.set_file_format(examples, "tfrecords_gzip")


class ImageExampleGenSpec(component_spec.ComponentSpec):
    """File-based ExampleGen's contract, with the ingest configuration and the rejects."""

    PARAMETERS = {
        **standard_component_specs.FileBasedExampleGenSpec.PARAMETERS,
        "ingest": component_spec.ExecutionParameter(type=str),
    }
    INPUTS: dict[str, Any] = {}
    OUTPUTS = {
        **standard_component_specs.FileBasedExampleGenSpec.OUTPUTS,
        "rejects": component_spec.ChannelParameter(type=ImageRejects),
    }


class ImageExampleGen(example_gen.FileBasedExampleGen):
    """Converts a folder of `label/image` or `split/label/image` files into TFRecord shards.

    Outputs:
        examples: `Examples`, uncompressed shards in `Split-<name>` folders, and `index.json`.
        rejects: `ImageRejects`, `rejects.jsonl` and `summary.json`.
    """

    SPEC_CLASS = ImageExampleGenSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
    DRIVER_CLASS = Driver

    def __init__(self, *, folder: str, config: IngestConfig) -> None:
        """Ingest `folder` as `config` says."""
        spec = ImageExampleGenSpec(
            input_base=folder,
            input_config=example_gen_pb2.Input(
                splits=[example_gen_pb2.Input.Split(name="all", pattern="**")]
            ),
            output_config=example_gen_pb2.Output(),
            output_data_format=example_gen_pb2.FORMAT_TF_EXAMPLE,
            output_file_format=example_gen_pb2.FORMAT_TFRECORDS_GZIP,
            ingest=config.to_json(),
            examples=types.Channel(type=standard_artifacts.Examples),
            rejects=types.Channel(type=ImageRejects),
        )
        # FileBasedExampleGen builds TFX's own spec; ours goes to the constructor above it.
        super(example_gen.FileBasedExampleGen, self).__init__(spec=spec)

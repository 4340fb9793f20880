"""ImageExampleGen: a folder of labelled images becomes sharded `tf.train.Example` records.

Extends TFX's file-based ExampleGen with its own driver (a fingerprint that sees moved files), its
own executor (a Beam element is a shard, never an image) and a second output, the rejected files.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import apache_beam as beam
from tfx import types
from tfx.components.example_gen import component as example_gen
from tfx.components.example_gen import driver, input_processor, utils
from tfx.components.util import examples_utils
from tfx.dsl.components.base import base_beam_executor, executor_spec
from tfx.dsl.io import fileio
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, component_spec, standard_artifacts, standard_component_specs

from components.errors import UserError
from components.ingest import IngestJob, WriteShards
from components.ingest_config import IngestConfig
from components.listing import Listing, check_labels, list_images
from components.report import (
    Report,
    check_conflicts,
    check_reports,
    conflicts,
    find_duplicates,
    labels_per_split,
    read_report,
    records_per_shard,
    shards_of,
    write_rejects,
)
from components.shards import ShardPlan, plan_shards, remove_shards, write_index
from components.spans import find_span

# Custom properties of the examples: the folder that was read, and how.
FOLDER_PROPERTY = "folder"
CONFIG_PROPERTY = "ingest"


class ImageRejects(types.Artifact):
    """The files that ingest did not use, and duplicates: one JSON object a line."""

    # Kubeflow Pipelines takes names of the form <namespace>.<Type> only.
    TYPE_NAME = "images.ImageRejects"


class _InputProcessor(input_processor.InputProcessor):
    """Lists the folder for the driver; TFX stores the fingerprint and keys its cache by it."""

    def __init__(self, folder: str, splits: Any, config: IngestConfig) -> None:
        super().__init__(splits=splits, range_config=None)
        self._folder = folder
        self._config = config

    def resolve_span_and_version(self) -> tuple[int, int | None]:
        found = find_span(self._folder, self._config.span)
        return found.span, found.version

    def get_pattern_for_span_version(self, pattern: str, span: int, version: int | None) -> str:
        return pattern

    def get_latest_span(self) -> int:
        return find_span(self._folder).span

    def get_input_fingerprint(self, span: int, version: int | None) -> str:
        folder = find_span(self._folder, span, version).folder
        listing = list_images(folder, self._config.manifest)
        check_labels(listing)
        return listing.fingerprint()


class Driver(driver.FileBasedDriver):
    """Resolves span, version and fingerprint of the folder before the cache is looked up."""

    LOOKED_UP_FROM = ("input_base", "ingest")

    def resolve_exec_properties(
        self, exec_properties: dict[str, Any], *arguments: Any, **options: Any
    ) -> dict[str, Any]:
        """Add `span`, `version` and `input_fingerprint`."""
        self._config = IngestConfig.from_json(exec_properties["ingest"])
        resolved: dict[str, Any] = super().resolve_exec_properties(
            exec_properties, *arguments, **options
        )
        return resolved

    @staticmethod
    def look_up(
        input_dict: dict[str, list[types.Artifact]], exec_properties: dict[str, Any]
    ) -> dict[str, Any]:
        """Resolve the same on Kubeflow Pipelines, which runs no drivers: in a step before this."""
        config = IngestConfig.from_json(exec_properties["ingest"])
        processor = _InputProcessor(exec_properties["input_base"], [], config)
        span, version = processor.resolve_span_and_version()
        return {
            utils.SPAN_PROPERTY_NAME: span,
            utils.VERSION_PROPERTY_NAME: version,
            utils.FINGERPRINT_PROPERTY_NAME: processor.get_input_fingerprint(span, version),
        }

    def get_input_processor(
        self, splits: Any, range_config: Any = None, input_base_uri: str | None = None
    ) -> input_processor.InputProcessor:
        """Return the processor that lists `input_base_uri`."""
        return _InputProcessor(str(input_base_uri), splits, self._config)


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
        config = IngestConfig.from_json(exec_properties["ingest"])
        listing = _list(exec_properties, config)
        plans = plan_shards(listing.files, config)
        remove_shards(examples.uri)
        job = IngestJob(listing.root, examples.uri, config, len(listing.files))
        self._write(plans, job)
        reports = [read_report(examples.uri, plan) for plan in plans]
        duplicates = find_duplicates(reports, config.splits)
        if config.conflicts == "drop" and conflicts(duplicates):
            reports = self._drop(reports, job, {c.sha256 for c in conflicts(duplicates)})
        rejects_uri = artifact_utils.get_single_uri(output_dict["rejects"])
        write_rejects(rejects_uri, reports, listing, duplicates)
        check_conflicts(duplicates, config)
        check_reports(reports, listing, config)
        _complete(examples, reports)
        _note_source(examples, listing.root, config, exec_properties)

    def _write(self, plans: list[ShardPlan], job: IngestJob) -> None:
        with self._make_beam_pipeline() as pipeline:
            _ = (
                pipeline
                | "Plans" >> beam.Create(plans, reshuffle=False)
                | "Spread" >> beam.Reshuffle()
                | "WriteShards" >> beam.ParDo(WriteShards(job))
            )

    def _drop(self, reports: list[Report], job: IngestJob, digests: set[str]) -> list[Report]:
        """Write the plans again that hold images with these digests, without them.

        Which images have several labels is known only when all are read, and there are few.
        """
        affected = [report for report in reports if not digests.isdisjoint(report.digests)]
        for report in affected:
            for path in shards_of(report, job.examples_uri).values():
                fileio.remove(path)
        total = sum(len(report.plan.files) for report in affected)
        again = dataclasses.replace(job, total=total, dropped=frozenset(digests))
        self._write([report.plan for report in affected], again)
        return [read_report(job.examples_uri, report.plan) for report in reports]


def _list(exec_properties: dict[str, Any], config: IngestConfig) -> Listing:
    """List the images that the driver saw; without a driver, as on Kubeflow, those of now."""
    span = exec_properties.get(utils.SPAN_PROPERTY_NAME, config.span)
    version = exec_properties.get(utils.VERSION_PROPERTY_NAME)
    folder = find_span(exec_properties["input_base"], span, version).folder
    listing = list_images(folder, config.manifest)
    check_labels(listing)
    expected = exec_properties.get(utils.FINGERPRINT_PROPERTY_NAME)
    if expected and expected != listing.fingerprint():
        # The result would be cached as that of other files.
        raise UserError(f"{folder} has changed since this run began: run again when it is at rest.")
    return listing


def _complete(examples: types.Artifact, reports: list[Report]) -> None:
    """Write the index, and say in the artifact what it holds."""
    splits = records_per_shard(reports)
    write_index(examples.uri, splits, labels=labels_per_split(reports))
    examples.split_names = artifact_utils.encode_split_names(sorted(splits))
    examples_utils.set_payload_format(examples, example_gen_pb2.FORMAT_TF_EXAMPLE)
    # TFX has one name for TFRecord files; its readers tell gzip by the end of the file name.
    examples_utils.set_file_format(examples, "tfrecords_gzip")


def _note_source(
    examples: types.Artifact, root: str, config: IngestConfig, exec_properties: dict[str, Any]
) -> None:
    """Keep what the driver resolved; on Kubeflow the step's output is all there is to keep it."""
    examples.set_string_custom_property(FOLDER_PROPERTY, root)
    examples.set_string_custom_property(CONFIG_PROPERTY, config.to_json())
    if fingerprint := exec_properties.get(utils.FINGERPRINT_PROPERTY_NAME):
        examples.set_string_custom_property(utils.FINGERPRINT_PROPERTY_NAME, fingerprint)
    for name in (utils.SPAN_PROPERTY_NAME, utils.VERSION_PROPERTY_NAME):
        if exec_properties.get(name) is not None:
            setattr(examples, name, exec_properties[name])


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

    The folder is a path or a URL, and may have TFX's placeholders `{SPAN}`, `{VERSION}`, `{YYYY}`,
    `{MM}` and `{DD}`.

    Outputs:
        examples: `Examples`, uncompressed shards in `Split-<name>` folders, and `index.json`.
        rejects: `ImageRejects`, `rejects.jsonl`, `skipped.jsonl`, `duplicates.jsonl` and
            `summary.json`.
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

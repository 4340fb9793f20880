"""The executor of ImageExampleGen: plans the shards, has them written, accounts for every file."""

from __future__ import annotations

import dataclasses
from typing import Any

import apache_beam as beam
from tfx import types
from tfx.components.example_gen import utils
from tfx.components.util import examples_utils
from tfx.dsl.components.base import base_beam_executor
from tfx.dsl.io import fileio
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils

from components.contract.artifacts import CONFIG_PROPERTY, FOLDER_PROPERTY
from components.contract.configuration import from_json, to_json
from components.contract.errors import UserError
from components.ingest.config import IngestConfig
from components.ingest.ingest_report import (
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
from components.ingest.listing import Listing, check_labels, list_images
from components.ingest.plan_work import IngestJob, WriteShards
from components.ingest.shard_plan import ShardPlan, plan_shards
from components.ingest.spans import find_span
from components.records.shard_files import remove_shards, write_index


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
        config = from_json(IngestConfig, exec_properties["config"])
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
    examples.set_string_custom_property(CONFIG_PROPERTY, to_json(config))
    if fingerprint := exec_properties.get(utils.FINGERPRINT_PROPERTY_NAME):
        examples.set_string_custom_property(utils.FINGERPRINT_PROPERTY_NAME, fingerprint)
    for name in (utils.SPAN_PROPERTY_NAME, utils.VERSION_PROPERTY_NAME):
        if exec_properties.get(name) is not None:
            setattr(examples, name, exec_properties[name])

"""ImageExampleGen: a folder of labelled images becomes sharded `tf.train.Example` records.

Extends TFX's file-based ExampleGen with its own driver (a fingerprint that sees moved files), its
own executor (a Beam element is a shard, never an image) and a second output, the rejected files.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import tensorflow as tf
from tfx import types
from tfx.components.example_gen import component as example_gen
from tfx.components.example_gen import driver, input_processor
from tfx.components.util import examples_utils
from tfx.dsl.components.base import base_beam_executor, executor_spec
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, component_spec, standard_artifacts, standard_component_specs

from components.errors import UserError
from components.example import make_example
from components.image_check import Category, Rejected, check_image
from components.ingest_config import IngestConfig
from components.listing import ImageFile, Listing, check_labels, list_images, open_folder
from components.progress import report_progress
from components.shards import (
    UNFINISHED,
    ShardPlan,
    open_shard,
    plan_shards,
    shard_path,
    split_of_content,
    write_index,
)

REJECTS_FILE = "rejects.jsonl"
REJECTS_SUMMARY_FILE = "summary.json"

# Images checked ahead of the writer: keeps the threads busy, bounds the memory of one worker.
_READ_AHEAD = 64
_NAMED_REJECTS = 3

_files_done: collections.Counter[str] = collections.Counter()


@dataclass(frozen=True)
class _Report:
    """What became of the files of one plan."""

    plan: ShardPlan
    labels: dict[str, dict[str, int]]
    """Split → label → examples."""
    rejects: list[dict[str, str]]

    @property
    def examples(self) -> int:
        return sum(sum(labels.values()) for labels in self.labels.values())


class ImageRejects(types.Artifact):  # type: ignore[misc]
    """The files that ingest did not use: one JSON object a line (`path`, `category`, `reason`)."""

    TYPE_NAME = "ImageRejects"


class _InputProcessor(input_processor.InputProcessor):  # type: ignore[misc]
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


class Driver(driver.FileBasedDriver):  # type: ignore[misc]
    """Resolves the fingerprint of the folder before the cache is looked up."""

    def get_input_processor(
        self, splits: Any, range_config: Any = None, input_base_uri: str | None = None
    ) -> input_processor.InputProcessor:
        """Return the processor that lists `input_base_uri`."""
        return _InputProcessor(str(input_base_uri), splits)


class Executor(base_beam_executor.BaseBeamExecutor):  # type: ignore[misc]
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
            writer = _WriteShards(folder, examples.uri, config, len(listing.files))
            _ = (
                pipeline
                | "Plans" >> beam.Create(plans, reshuffle=False)
                | "Spread" >> beam.Reshuffle()
                | "WriteShards" >> beam.ParDo(writer)
            )
        reports = [_read_report(examples.uri, plan) for plan in plans]
        _write_rejects(artifact_utils.get_single_uri(output_dict["rejects"]), reports, listing)
        _check_reports(reports, listing, config)
        _publish(examples, reports)


class _WriteShards(beam.DoFn):  # type: ignore[misc]
    """Reads and checks the files of a plan; writes one shard per split and a report of it."""

    def __init__(self, folder: str, examples_uri: str, config: IngestConfig, total: int) -> None:
        self._folder = folder
        self._examples_uri = examples_uri
        self._config = config
        self._total = total

    def process(self, plan: ShardPlan) -> Iterator[None]:
        labels: dict[str, collections.Counter[str]] = {}
        rejects: list[dict[str, str]] = []
        with contextlib.ExitStack() as stack:
            writers: dict[str, tf.io.TFRecordWriter] = {}
            for file, outcome in self._check_all(plan):
                if isinstance(outcome, Rejected):
                    reject = {"path": file.path, "category": outcome.category.value}
                    rejects.append({**reject, "reason": str(outcome)})
                    continue
                split, record = outcome
                if split not in writers:
                    path = shard_path(self._examples_uri, split, plan.index, plan.count)
                    writers[split] = stack.enter_context(open_shard(path))
                    labels[split] = collections.Counter()
                writers[split].write(record)
                labels[split][file.label] += 1
        _write_report(self._examples_uri, plan, labels, rejects)
        yield from ()

    def _check_all(
        self, plan: ShardPlan
    ) -> Iterator[tuple[ImageFile, tuple[str, bytes] | Rejected]]:
        """Yield the split and the record of each file, in order, checked by several threads."""
        fs, root = open_folder(self._folder)

        def check(file: ImageFile) -> tuple[str, bytes] | Rejected:
            try:
                return self._record(file, _read(fs, f"{root}/{file.path}", file, self._config))
            except Rejected as rejected:
                return rejected

        with ThreadPoolExecutor(self._config.threads) as pool:
            for start in range(0, len(plan.files), _READ_AHEAD):
                batch = plan.files[start : start + _READ_AHEAD]
                yield from zip(batch, pool.map(check, batch), strict=True)
                # Counts what this worker process has done; a distributed runner has several.
                _files_done[self._examples_uri] += len(batch)
                done = _files_done[self._examples_uri]
                report_progress(done=done, total=self._total, unit="images")

    def _record(self, file: ImageFile, data: bytes) -> tuple[str, bytes]:
        image = check_image(data, self._config)
        sha256 = hashlib.sha256(data).hexdigest()
        example = make_example(
            encoded=image.encoded,
            image_format=image.format,
            height=image.height,
            width=image.width,
            filename=file.path,
            sha256=sha256,
            label=file.label,
        )
        split = file.split or split_of_content(sha256, self._config.splits)
        return split, example.SerializeToString(deterministic=True)


def _read(fs: Any, path: str, file: ImageFile, config: IngestConfig) -> bytes:
    if file.size > config.max_image_mib * 2**20:
        size = f"{file.size / 2**20:.1f} MiB, above {config.max_image_mib:g}"
        raise Rejected(Category.TOO_LARGE, size)
    try:
        data: bytes = fs.cat_file(path)
    except OSError as error:
        raise Rejected(Category.UNREADABLE, str(error)) from error
    if len(data) != file.size:
        reason = f"{len(data)} bytes, but {file.size} when it was listed: it changed meanwhile"
        raise Rejected(Category.UNREADABLE, reason)
    return data


def _report_path(examples_uri: str, plan: ShardPlan) -> str:
    return os.path.join(examples_uri, UNFINISHED, f"report-{plan.group}-{plan.index:05d}.json")


def _write_report(
    examples_uri: str,
    plan: ShardPlan,
    labels: dict[str, collections.Counter[str]],
    rejects: list[dict[str, str]],
) -> None:
    """Keep what a worker found where the executor reads it, on whatever runner Beam has."""
    tf.io.gfile.makedirs(os.path.join(examples_uri, UNFINISHED))
    with tf.io.gfile.GFile(_report_path(examples_uri, plan), "w") as file:
        file.write(json.dumps({"labels": labels, "rejects": rejects}))


def _read_report(examples_uri: str, plan: ShardPlan) -> _Report:
    with tf.io.gfile.GFile(_report_path(examples_uri, plan)) as file:
        return _Report(plan=plan, **json.loads(file.read()))


def _write_rejects(rejects_uri: str, reports: list[_Report], listing: Listing) -> None:
    """Write one line per rejected file, in path order, and the counts by category."""
    rejects = sorted((r for report in reports for r in report.rejects), key=lambda r: r["path"])
    tf.io.gfile.makedirs(rejects_uri)
    with tf.io.gfile.GFile(os.path.join(rejects_uri, REJECTS_FILE), "w") as file:
        for reject in rejects:
            file.write(json.dumps(reject) + "\n")
    categories = collections.Counter(reject["category"] for reject in rejects)
    summary = {
        "files": len(listing.files) + len(listing.skipped),
        "examples": sum(report.examples for report in reports),
        "rejected": len(rejects),
        "skipped": len(listing.skipped),
        "rejected_by_category": dict(sorted(categories.items())),
    }
    with tf.io.gfile.GFile(os.path.join(rejects_uri, REJECTS_SUMMARY_FILE), "w") as file:
        file.write(json.dumps(summary, indent=1))


def _check_reports(reports: list[_Report], listing: Listing, config: IngestConfig) -> None:
    """Raise unless every file is accounted for, few are rejected, and train has every class."""
    rejects = [reject for report in reports for reject in report.rejects]
    files, examples = len(listing.files), sum(report.examples for report in reports)
    if files != examples + len(rejects):
        raise RuntimeError(f"{files} files became {examples} examples and {len(rejects)} rejects")
    if len(rejects) > config.max_reject_fraction * files:
        named = "; ".join(f"{r['path']} ({r['category']})" for r in rejects[:_NAMED_REJECTS])
        raise UserError(
            f"{'All' if not examples else f'{len(rejects)} of'} {files} files in {listing.root} "
            f"are not usable images, such as {named}: repair or remove them, or raise "
            f"ingest.max_reject_fraction above {config.max_reject_fraction:g}."
        )
    found = _labels_per_split(reports)
    for split in ("train", "eval"):
        if not found.get(split):
            raise UserError(
                f"No image of {listing.root} falls into the {split} split: add images, or sort "
                f"them into train and eval folders."
            )
    untrained = sorted(set().union(*found.values()) - found["train"].keys())
    if untrained:
        raise UserError(
            f"Class {untrained[0]!r} of {listing.root} has no usable image to train on: add "
            f"images, or remove the class."
        )


def _labels_per_split(reports: list[_Report]) -> dict[str, collections.Counter[str]]:
    found: dict[str, collections.Counter[str]] = {}
    for report in reports:
        for split, labels in report.labels.items():
            found.setdefault(split, collections.Counter()).update(labels)
    return found


def _publish(examples: types.Artifact, reports: list[_Report]) -> None:
    """Write the index and describe the artifact the way TFX's readers expect."""
    splits: dict[str, dict[str, int]] = {}
    for report in reports:
        for split, labels in report.labels.items():
            name = os.path.basename(shard_path("", split, report.plan.index, report.plan.count))
            splits.setdefault(split, {})[name] = sum(labels.values())
    write_index(examples.uri, splits, labels=_labels_per_split(reports))
    examples.split_names = artifact_utils.encode_split_names(sorted(splits))
    examples_utils.set_payload_format(examples, example_gen_pb2.FORMAT_TF_EXAMPLE)
    # TFX has one name for TFRecord files; its readers tell gzip by the ending of the file name.
    examples_utils.set_file_format(examples, "tfrecords_gzip")


class ImageExampleGenSpec(component_spec.ComponentSpec):  # type: ignore[misc]
    """File-based ExampleGen's contract, with the ingest configuration and the rejects."""

    PARAMETERS = {
        **standard_component_specs.FileBasedExampleGenSpec.PARAMETERS,
        "ingest": component_spec.ExecutionParameter(type=str),
        "code_digest": component_spec.ExecutionParameter(type=str),
    }
    INPUTS: dict[str, Any] = {}
    OUTPUTS = {
        **standard_component_specs.FileBasedExampleGenSpec.OUTPUTS,
        "rejects": component_spec.ChannelParameter(type=ImageRejects),
    }


class ImageExampleGen(example_gen.FileBasedExampleGen):  # type: ignore[misc]
    """Converts a folder of `label/image` or `split/label/image` files into TFRecord shards.

    Outputs:
        examples: `Examples`, uncompressed shards in `Split-<name>` folders, and `index.json`.
        rejects: `ImageRejects`, `rejects.jsonl` and `summary.json`.
    """

    SPEC_CLASS = ImageExampleGenSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
    DRIVER_CLASS = Driver

    def __init__(self, *, folder: str, config: IngestConfig, code_digest: str = "") -> None:
        """Ingest `folder` as `config` says; a changed `code_digest` makes cached output stale."""
        spec = ImageExampleGenSpec(
            input_base=folder,
            input_config=example_gen_pb2.Input(
                splits=[example_gen_pb2.Input.Split(name="all", pattern="**")]
            ),
            output_config=example_gen_pb2.Output(),
            output_data_format=example_gen_pb2.FORMAT_TF_EXAMPLE,
            output_file_format=example_gen_pb2.FORMAT_TFRECORDS_GZIP,
            ingest=config.to_json(),
            code_digest=code_digest,
            examples=types.Channel(type=standard_artifacts.Examples),
            rejects=types.Channel(type=ImageRejects),
        )
        # FileBasedExampleGen builds TFX's own spec; ours goes to the constructor above it.
        super(example_gen.FileBasedExampleGen, self).__init__(spec=spec)

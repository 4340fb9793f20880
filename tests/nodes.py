"""Runs the executors of single nodes, the way TFX's launcher would, without a metadata store."""

from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx import types
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.types import standard_artifacts
from tfx.utils import io_utils

from components.contract.configuration import to_json
from components.contract.example import (
    CHANNELS,
    ENCODED,
    FILE_SIZE,
    FILENAME,
    FORMAT,
    HEIGHT,
    LABEL,
    LUMINANCE,
    SHA256,
    WIDTH,
)
from components.contract.tfx_classes import ImageRejects
from components.images.options import TransformConfig
from components.ingest.config import IngestConfig
from components.ingest.executor import Executor as IngestExecutor
from components.transform.executor import Executor as TransformExecutor
from pipeline_def.config.config import Config
from pipeline_def.steps import STEPS
from tests.files import read_files

TEXTS = [ENCODED, FILENAME, FORMAT, LABEL, SHA256]
INTEGERS = [CHANNELS, FILE_SIZE, HEIGHT, WIDTH]

# The steps of a run with no options, in the order in which they run.
NODES = [row.id for row in STEPS.values() if not row.needs]

IN_MEMORY = tuple(Config().beam_pipeline_args)
TWO_WORKERS = (
    "--runner=FnApiRunner",
    "--direct_running_mode=multi_threading",
    "--direct_num_workers=2",
    "--sdk_container_image=none",
)


@dataclass(frozen=True)
class Ingested:
    examples: types.Artifact
    rejects: types.Artifact


@dataclass(frozen=True)
class Transformed:
    examples: types.Artifact
    graph: types.Artifact


def _context(beam_args: tuple[str, ...]) -> BaseBeamExecutor.Context:
    return BaseBeamExecutor.Context(beam_pipeline_args=list(beam_args))


def _artifact(kind: type[types.Artifact], folder: Path) -> types.Artifact:
    artifact = kind()
    artifact.uri = str(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return artifact


def ingest(
    folder: Path | str,
    target: Path,
    *,
    config: IngestConfig | None = None,
    beam_args: tuple[str, ...] = IN_MEMORY,
    listing: str | None = None,
    number: str = "",
) -> Ingested:
    """Run ImageExampleGen on `folder`.

    `listing` is what its driver has written, if anything, and `number` that of the outputs, which
    may use earlier ones.
    """
    examples = _artifact(standard_artifacts.Examples, target / "examples" / number)
    rejects = _artifact(ImageRejects, target / "rejects" / number)
    IngestExecutor(_context(beam_args)).Do(
        {},
        {"examples": [examples], "rejects": [rejects]},
        {
            "input_base": str(folder),
            "config": to_json(config or IngestConfig()),
            "listing": listing,
            "code_digest": number and "code",
        },
    )
    return Ingested(examples, rejects)


def write_schema(target: Path) -> types.Artifact:
    """Write as much of ImageSchemaGen's schema as Transform needs, without statistics."""
    kinds = {schema_pb2.BYTES: TEXTS, schema_pb2.INT: INTEGERS, schema_pb2.FLOAT: [LUMINANCE]}
    schema = schema_pb2.Schema()
    for kind, names in kinds.items():
        for name in names:
            feature = schema.feature.add(name=name, type=kind)
            feature.presence.min_fraction = 1
            feature.shape.dim.add(size=1)
    artifact = _artifact(standard_artifacts.Schema, target / "schema")
    io_utils.write_pbtxt_file(str(target / "schema" / "schema.pbtxt"), schema)
    return artifact


def transform(
    ingested: Ingested,
    target: Path,
    *,
    config: TransformConfig,
    beam_args: tuple[str, ...] = IN_MEMORY,
    number: str = "",
) -> Transformed:
    """Run ImageTransform; `number` is that of the outputs, which may use earlier ones."""
    examples = _artifact(standard_artifacts.Examples, target / "examples" / number)
    graph = _artifact(standard_artifacts.TransformGraph, target / "graph" / number)
    TransformExecutor(_context(beam_args)).Do(
        {"examples": [ingested.examples], "schema": [write_schema(target)]},
        {"transformed_examples": [examples], "transform_graph": [graph]},
        {
            "preprocessing_fn": "components.transform.executor.preprocessing_fn",
            "custom_config": to_json(config),
            "disable_statistics": 1,
            "code_digest": number and "code",
        },
    )
    return Transformed(examples, graph)


def shard_bytes(artifact: types.Artifact) -> dict[str, bytes]:
    """Return the content of every file of an Examples artifact, by relative path."""
    return read_files(Path(artifact.uri))


def read_examples(artifact: types.Artifact, split: str) -> list[tf.train.Example]:
    """Return the records of a split, shard by shard."""
    shards = sorted(str(path) for path in Path(artifact.uri, f"Split-{split}").iterdir())
    records = tf.data.TFRecordDataset(shards).as_numpy_iterator()
    return [tf.train.Example.FromString(record) for record in records]

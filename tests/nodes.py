"""Runs the executors of single nodes, the way TFX's launcher would, without a metadata store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf
from tfx import types
from tfx.components.statistics_gen import executor as statistics_gen
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.types import standard_artifacts

from components.contract.artifacts import ImageRejects
from components.contract.configuration import to_json
from components.ingest.config import IngestConfig
from components.ingest.executor import Executor as IngestExecutor
from components.transform.config import TransformConfig
from components.transform.executor import Executor as TransformExecutor
from components.validation import schema_gen as image_schema_gen
from components.validation.statistics import statistics_options
from pipeline_def.config.config import Config

# The nodes of the pipeline, in the order in which they run.
NODES = [
    "ImageExampleGen",
    "StatisticsGen",
    "SchemaGen",
    "ExampleValidator",
    "AnomalyGate",
    "Transform",
    "Trainer",
    "BaselineFinder",
    "Evaluator",
    "ImageReport",
    "Pusher",
]

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
) -> Ingested:
    """Run ImageExampleGen on `folder`; `listing` is what its driver has written, if anything."""
    examples = _artifact(standard_artifacts.Examples, target / "examples")
    rejects = _artifact(ImageRejects, target / "rejects")
    IngestExecutor(_context(beam_args)).Do(
        {},
        {"examples": [examples], "rejects": [rejects]},
        {
            "input_base": str(folder),
            "config": to_json(config or IngestConfig()),
            "listing": listing,
        },
    )
    return Ingested(examples, rejects)


def infer_schema(ingested: Ingested, target: Path) -> types.Artifact:
    """Run StatisticsGen and ImageSchemaGen."""
    statistics = _artifact(standard_artifacts.ExampleStatistics, target / "statistics")
    schema = _artifact(standard_artifacts.Schema, target / "schema")
    statistics_gen.Executor(_context(IN_MEMORY)).Do(
        {"examples": [ingested.examples]},
        {"statistics": [statistics]},
        {"stats_options_json": statistics_options().to_json()},
    )
    image_schema_gen.Executor().Do({"statistics": [statistics]}, {"schema": [schema]}, {})
    return schema


def transform(
    ingested: Ingested,
    target: Path,
    *,
    config: TransformConfig,
    beam_args: tuple[str, ...] = IN_MEMORY,
) -> Transformed:
    """Run StatisticsGen, ImageSchemaGen and ImageTransform."""
    examples = _artifact(standard_artifacts.Examples, target / "examples")
    graph = _artifact(standard_artifacts.TransformGraph, target / "graph")
    TransformExecutor(_context(beam_args)).Do(
        {"examples": [ingested.examples], "schema": [infer_schema(ingested, target)]},
        {"transformed_examples": [examples], "transform_graph": [graph]},
        {
            "preprocessing_fn": "components.transform.preprocessing.preprocessing_fn",
            "custom_config": to_json(config),
            "disable_statistics": 1,
        },
    )
    return Transformed(examples, graph)


def shard_bytes(artifact: types.Artifact) -> dict[str, bytes]:
    """Return the content of every file of an Examples artifact, by relative path."""
    root = Path(artifact.uri)
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def read_examples(artifact: types.Artifact, split: str) -> list[tf.train.Example]:
    """Return the records of a split, shard by shard."""
    shards = sorted(str(path) for path in Path(artifact.uri, f"Split-{split}").iterdir())
    records = tf.data.TFRecordDataset(shards).as_numpy_iterator()
    return [tf.train.Example.FromString(record) for record in records]

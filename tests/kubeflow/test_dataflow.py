"""Dataflow takes every graph of the steps; nothing is submitted."""

import base64
import bz2
import contextlib
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.types import standard_artifacts

from components.images.options import TransformConfig
from components.validation.statistics_gen import Executor as StatisticsExecutor
from tests import nodes
from tests.evaluation.predictions_sample import make_predictions
from tests.evaluation.sample_models import Model, evaluate, write_examples

_OPTIONS = (
    *("--runner=DataflowRunner", "--dry_run=true", "--project=project", "--region=region"),
    *("--temp_location=gs://bucket/temporary", "--staging_location=gs://bucket/staging"),
    *("--sdk_container_image=image:1", "--job_name=job"),
)
_LOCAL = re.compile(rb"(?<![\w:/.])/(?:tmp|var|root|home|work|usr|opt)/[\w./@+-]+")
_ENCODED = re.compile(rb"[A-Za-z0-9+/]{40,}={0,2}")


class Compiled(FnApiRunner):
    """Compiles each graph for Dataflow, then runs it here."""

    graphs: ClassVar[list[Any]] = []

    def run_pipeline(self, pipeline: beam.Pipeline, options: PipelineOptions) -> Any:
        proto, dataflow = pipeline.to_runner_api(), DataflowRunner()
        copy = beam.Pipeline.from_runner_api(proto, dataflow, PipelineOptions(list(_OPTIONS)))
        self.graphs.append(copy.run().job.proto_pipeline)
        return super().run_pipeline(pipeline, options)


BEAM = (f"--runner={__name__}.Compiled", "--sdk_container_image=image:1")


def steps(image_folder: Path, folder: Path) -> Iterator[str]:
    """Run each step that uses Beam; yield its name."""
    done = nodes.ingest(image_folder, folder / "ingest", beam_args=BEAM)
    yield "ImageExampleGen"
    statistics = standard_artifacts.ExampleStatistics()
    statistics.uri = str(folder / "statistics")
    context = BaseBeamExecutor.Context(beam_pipeline_args=list(BEAM))
    StatisticsExecutor(context).Do({"examples": [done.examples]}, {"statistics": [statistics]}, {})
    yield "StatisticsGen"
    nodes.transform(done, folder / "transform", config=TransformConfig(size=32), beam_args=BEAM)
    yield "Transform"
    labels = ("a", "b", "c")
    examples = write_examples(folder / "examples", "test", make_predictions(labels))
    evaluate(folder / "evaluate", examples, Model(labels).save(folder / "model"), beam_args=BEAM)
    yield "Evaluator"


def unpack(payload: bytes) -> Iterator[bytes]:
    """Yield a payload and what Beam has pickled, compressed and encoded in it."""
    yield payload
    for text in _ENCODED.findall(payload):
        # A length before it may look like some of its letters.
        for start in range(4):
            with contextlib.suppress(ValueError, OSError, zlib.error):
                data = base64.b64decode(text[start : len(text) - (len(text) - start) % 4])
                yield (bz2 if data[:3] == b"BZh" else zlib).decompress(data)
                break


def local_paths(graph: Any) -> set[str]:
    """Return all paths of this machine in the pickled functions of a graph, but not in code."""
    paths = {
        path.decode()
        for transform in graph.components.transforms.values()
        for data in unpack(transform.spec.payload)
        for path in _LOCAL.findall(data)
    }
    return {path for path in paths if not path.endswith(".py")}


@pytest.mark.slow
@pytest.mark.weekly
def test_dataflow_takes_the_graphs_of_all_steps_and_they_name_only_artifacts(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("components.validation.statistics_gen._FEW", 0)
    compiled: dict[str, list[Any]] = {}
    for step in steps(image_folder, tmp_path):
        compiled[step], Compiled.graphs[:] = Compiled.graphs[:], []
    assert {step: len(graphs) for step, graphs in compiled.items()} == {
        "ImageExampleGen": 1,
        "StatisticsGen": 1,
        "Transform": 1,
        "Evaluator": 1,
    }
    graphs = [graph for of_step in compiled.values() for graph in of_step]
    named = {path for graph in graphs for path in local_paths(graph)}
    # With an output in a bucket, all of these are URLs.
    artifacts = {path for path in named if path.startswith((str(tmp_path), str(image_folder)))}
    assert artifacts
    assert named == artifacts
    environments = [env for graph in graphs for env in graph.components.environments.values()]
    assert {(env.urn, env.payload[-7:]) for env in environments} == {
        ("beam:env:docker:v1", b"image:1")
    }
    staged = {os.path.basename(d.type_payload) for env in environments for d in env.dependencies}
    assert staged == {b"pickled_main_session", b"submission_environment_dependencies.txt"}, (
        "no package that pip would have to install"
    )

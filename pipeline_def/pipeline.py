"""The DAG: one `create_pipeline(config)` for every runner."""

from __future__ import annotations

from dataclasses import asdict

from tfx.components.statistics_gen.component import StatisticsGen
from tfx.components.trainer.component import Trainer
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.orchestration.metadata import sqlite_metadata_connection_config
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import pusher_pb2, trainer_pb2

from components.anomaly_gate import AnomalyGate
from components.baseline import BaselineFinder
from components.curated_schema import read_schema
from components.image_evaluator import ImageEvaluator
from components.image_example_gen import ImageExampleGen
from components.image_pusher import ImagePusher
from components.image_report import ImageReport
from components.image_schema_gen import ImageSchemaGen
from components.image_statistics import statistics_options
from components.image_transform import ImageTransform
from components.image_validator import ImageValidator
from pipeline_def.code_digest import code_digest, whole_digest
from pipeline_def.config import Config
from pipeline_def.evaluation import make_eval_config
from pipeline_def.layout import Layout


def create_pipeline(config: Config) -> Pipeline:
    """Build the pipeline.

    Args:
        config: resolved: `data`, `transform.size` and `model.name` are set.
    """
    layout = Layout(config.output)
    # A cluster has its own metadata store; on this machine it is a file among the outputs.
    local = "://" not in config.output
    components = _components(config, layout)
    for component in components:
        if digest := code_digest(component.id):
            component.exec_properties["code_digest"] = digest
    return Pipeline(
        pipeline_name=config.name,
        pipeline_root=layout.artifacts,
        components=components,
        enable_cache=config.cache,
        metadata_connection_config=sqlite_metadata_connection_config(layout.metadata)
        if local
        else None,
        beam_pipeline_args=list(config.beam_pipeline_args),
    )


def _components(config: Config, layout: Layout) -> list[BaseComponent]:
    data = _data_components(config, layout)
    example_gen, _, schema_gen, validator, gate = data
    examples = example_gen.outputs["examples"]
    transform = ImageTransform(
        examples=examples,
        schema=schema_gen.outputs["schema"],
        preprocessing_fn="pipeline_def.transform.preprocessing_fn",
        disable_statistics=True,
        disable_analyzer_cache=True,
        custom_config={"transform": asdict(config.transform)},
    )
    transform.add_upstream_node(gate)
    trainer = _trainer(config, layout, transform)
    model = trainer.outputs["model"]
    baseline = BaselineFinder(model=model, pushed_models=layout.pushed)
    evaluator = ImageEvaluator(
        examples=examples,
        model=model,
        baseline_model=baseline.outputs["baseline"],
        eval_config=make_eval_config(config.evaluation),
    ).with_id("Evaluator")
    report = ImageReport(
        pipeline=config.name,
        code=whole_digest(),
        preview_fn="pipeline_def.preview.preview",
        examples=examples,
        rejects=example_gen.outputs["rejects"],
        anomalies=validator.outputs["anomalies"],
        transformed_examples=transform.outputs["transformed_examples"],
        model_run=trainer.outputs["model_run"],
        baseline=baseline.outputs["baseline"],
        evaluation=evaluator.outputs["evaluation"],
        blessing=evaluator.outputs["blessing"],
    )
    pusher = ImagePusher(
        model=model,
        model_blessing=evaluator.outputs["blessing"],
        card=report.outputs["card"],
        push_destination=pusher_pb2.PushDestination(
            filesystem=pusher_pb2.PushDestination.Filesystem(base_directory=layout.pushed)
        ),
    )
    transform, pusher = transform.with_id("Transform"), pusher.with_id("Pusher")
    return [*data, transform, trainer, baseline, evaluator, report, pusher]


def _data_components(config: Config, layout: Layout) -> list[BaseComponent]:
    """From the folder to examples that fit their schema: ExampleGen first, the gate last."""
    validation = config.validation
    example_gen = ImageExampleGen(folder=str(config.data), config=config.ingest)
    statistics = StatisticsGen(
        examples=example_gen.outputs["examples"], stats_options=statistics_options()
    )
    schema_gen = ImageSchemaGen(
        statistics=statistics.outputs["statistics"],
        config=validation,
        curated=read_schema(validation.schema) if validation.schema else None,
    )
    validator = ImageValidator(
        statistics=statistics.outputs["statistics"],
        schema=schema_gen.outputs["schema"],
        kept_statistics=layout.statistics,
        drift=validation.drift,
    )
    gate = AnomalyGate(
        anomalies=validator.outputs["anomalies"],
        statistics=statistics.outputs["statistics"],
        kept_statistics=layout.statistics,
        on_anomalies=validation.anomalies,
        on_drift=validation.drift,
    )
    schema, checked = schema_gen.with_id("SchemaGen"), validator.with_id("ExampleValidator")
    return [example_gen, statistics, schema, checked, gate]


def _trainer(config: Config, layout: Layout, transform: ImageTransform) -> Trainer:
    return Trainer(
        run_fn="pipeline_def.trainer.run_fn",
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        train_args=trainer_pb2.TrainArgs(splits=["train"]),
        eval_args=trainer_pb2.EvalArgs(splits=["eval"]),
        custom_config={
            "transform": asdict(config.transform),
            "input": asdict(config.input),
            "augmentation": asdict(config.augmentation),
            "model": asdict(config.model),
            "training": asdict(config.training),
            "checkpoints": layout.checkpoints,
        },
    )

"""The DAG: one `create_pipeline(config)` for every runner."""

import dataclasses
from collections.abc import Iterable

from tfx.dsl.components.base.base_component import BaseComponent
from tfx.orchestration.metadata import sqlite_metadata_connection_config
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import pusher_pb2
from tfx.types.channel import BaseChannel

from components.contract.configuration import to_json
from components.evaluation.baseline import BaselineFinder
from components.evaluation.component import ImageEvaluator
from components.ingest.component import ImageExampleGen
from components.predict.component import ImagePredictor
from components.push.component import ImagePusher
from components.report.component import ImageReport
from components.trainer.component import ImageTrainer
from components.trainer.config.model import ExportConfig
from components.trainer.config.training import TrainerConfig
from components.transform.component import ImageTransform
from components.validation.config import ValidationConfig
from components.validation.gate import AnomalyGate
from components.validation.schema_gen import ImageSchemaGen
from components.validation.statistics_gen import ImageStatisticsGen
from components.validation.tfdv_files import read_schema
from components.validation.validator import ImageValidator
from pipeline_def import steps
from pipeline_def.code_digest import code_digest, whole_digest
from pipeline_def.config.config import Config
from pipeline_def.layout import Layout


def create_pipeline(config: Config, *, metadata: str | None = None, listing: str = "") -> Pipeline:
    """Build the pipeline.

    Args:
        config: resolved: `data`, `transform.size` and `model.name` are set.
        metadata: SQLite file of ML Metadata; None: the runner has a store of its own.
        listing: file of a listing of `data` that was made for this run; "": ingest lists it.
    """
    layout = Layout(config.output)
    components = _components(config, layout, listing)
    for component in components:
        digest = code_digest(component.id, config.model.build_fn, config.augmentation.fn)
        component.exec_properties["code_digest"] = digest
    return Pipeline(
        pipeline_name=config.name,
        pipeline_root=layout.artifacts,
        components=components,
        enable_cache=config.cache,
        metadata_connection_config=sqlite_metadata_connection_config(metadata)
        if metadata
        else None,
        beam_pipeline_args=list(config.beam_pipeline_args),
    )


def _components(config: Config, layout: Layout, listing: str) -> list[BaseComponent]:
    *validated, gate = _ingest_and_validate(config, layout, listing)
    channels = _outputs_of(validated)
    transform = ImageTransform(
        examples=channels["examples"], schema=channels["schema"], config=config.transform
    ).with_id(steps.TRANSFORM.id)
    transform.add_upstream_node(gate)
    training = _train(config, layout, transform)
    channels |= _outputs_of([transform, *training])
    evaluated = _evaluate_and_push(config, layout, channels)
    components = [*validated, gate, transform, *training, *evaluated]
    if config.predict.folder:
        channels |= _outputs_of(evaluated)
        components.append(_predict(config, config.predict.folder, channels))
    return components


def _outputs_of(components: Iterable[BaseComponent]) -> dict[str, BaseChannel]:
    """Return the outputs of components by name; no two steps have an output of the same name."""
    return {name: output for component in components for name, output in component.outputs.items()}


def _ingest_and_validate(config: Config, layout: Layout, listing: str) -> list[BaseComponent]:
    """Turn the folder into validated examples: ExampleGen first, the gate last."""
    # The steps get the content of the schema file, which only this machine may see.
    validation = dataclasses.replace(config.validation, schema=None)
    example_gen = ImageExampleGen(
        folder=str(config.data), config=config.ingest, listings=layout.listings, listing=listing
    ).with_id(steps.EXAMPLE_GEN.id)
    statistics = ImageStatisticsGen(examples=example_gen.outputs["examples"]).with_id(
        steps.STATISTICS_GEN.id
    )
    # What the gate makes of an anomaly is not in the schema: changing it must not train again.
    limits = dataclasses.replace(
        validation, anomalies=ValidationConfig.anomalies, drift=ValidationConfig.drift
    )
    schema_gen = ImageSchemaGen(
        statistics=statistics.outputs["statistics"],
        config=limits,
        curated=read_schema(config.validation.schema) if config.validation.schema else None,
    ).with_id(steps.SCHEMA_GEN.id)
    validator = ImageValidator(
        statistics=statistics.outputs["statistics"],
        schema=schema_gen.outputs["schema"],
        statistics_history=layout.statistics,
        config=validation,
    ).with_id(steps.EXAMPLE_VALIDATOR.id)
    gate = AnomalyGate(
        anomalies=validator.outputs["anomalies"],
        statistics=statistics.outputs["statistics"],
        statistics_history=layout.statistics,
        config=to_json(validation),
    ).with_id(steps.ANOMALY_GATE.id)
    return [example_gen, statistics, schema_gen, validator, gate]


def _train(config: Config, layout: Layout, transform: ImageTransform) -> list[BaseComponent]:
    """Train; with `training.minutes`, search first."""
    examples = transform.outputs["transformed_examples"]
    graph = transform.outputs["transform_graph"]
    training = TrainerConfig(
        transform=config.transform,
        input=config.input,
        augmentation=config.augmentation,
        model=config.model,
        training=config.training,
        transfer=config.transfer,
        # Only the Evaluator uses this bound: changing it must not train again.
        export=dataclasses.replace(config.export, max_drop=ExportConfig.max_drop),
        judged_by_folds=True,
        checkpoints=layout.checkpoints,
    )
    if not config.training.minutes:
        trainer = ImageTrainer(examples=examples, transform_graph=graph, config=training)
        return [trainer.with_id(steps.TRAINER.id)]
    # KerasTuner takes a second to import.
    from components.tuner.component import ImageTuner

    tuner = ImageTuner(examples=examples, transform_graph=graph, config=training)
    trainer = ImageTrainer(
        examples=examples,
        transform_graph=graph,
        hyperparameters=tuner.outputs["best_hyperparameters"],
        tuner_run=tuner.outputs["tuner_run"],
        config=training,
    )
    return [tuner.with_id(steps.TUNER.id), trainer.with_id(steps.TRAINER.id)]


def _evaluate_and_push(
    config: Config, layout: Layout, channels: dict[str, BaseChannel]
) -> list[BaseComponent]:
    """Evaluate the model against the one in use, report on it, and push it."""
    examples, model = channels["examples"], channels["model"]
    baseline = BaselineFinder(model=model, pushed_models=layout.pushed).with_id(
        steps.BASELINE_FINDER.id
    )
    evaluator = ImageEvaluator(
        examples=examples,
        model=model,
        baseline_model=baseline.outputs["baseline"],
        config=config.evaluation,
        max_format_drop=config.export.max_drop,
    ).with_id(steps.EVALUATOR.id)
    report = ImageReport(
        pipeline=config.name,
        code=whole_digest(),
        examples=examples,
        rejects=channels["rejects"],
        anomalies=channels["anomalies"],
        transformed_examples=channels["transformed_examples"],
        model=model,
        model_run=channels["model_run"],
        evaluation=evaluator.outputs["evaluation"],
    ).with_id(steps.REPORT.id)
    pushed = pusher_pb2.PushDestination.Filesystem(base_directory=layout.pushed)
    pusher = ImagePusher(
        model=model,
        model_blessing=evaluator.outputs["blessing"],
        card=report.outputs["card"],
        push_destination=pusher_pb2.PushDestination(filesystem=pushed),
    ).with_id(steps.PUSHER.id)
    return [baseline, evaluator, report, pusher]


def _predict(config: Config, folder: str, channels: dict[str, BaseChannel]) -> BaseComponent:
    """Predict the labels of a folder of other images."""
    return ImagePredictor(
        folder=folder,
        model=channels["model"],
        model_blessing=channels["blessing"],
        config=dataclasses.replace(config.predict, folder=None),
        options=config.ingest,
    ).with_id(steps.PREDICTOR.id)

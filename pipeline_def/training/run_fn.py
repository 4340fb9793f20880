"""Trainer's run_fn: input, model, training, export; no logic of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tf_keras

from components.contract.configuration import from_dict, to_dict
from components.contract.machine import available_cpus, bound_cpus
from components.contract.model_files import (
    HISTORY_FILE,
    INPUT_FILE,
    LITE_FOLDER,
    MODEL_FILE,
    TRAINING_FILE,
    WEIGHTS_FILE,
)
from pipeline_def.config.trainer import TrainerConfig, fill_in
from pipeline_def.data.shards import Shards
from pipeline_def.model.networks import build_model
from pipeline_def.model.parts import save_backbone
from pipeline_def.model.weights_file import name_network
from pipeline_def.serving.lite import export_lite
from pipeline_def.serving.signatures import export_model
from pipeline_def.serving.transform_graph import TransformGraph
from pipeline_def.serving.warmup import write_warmup
from pipeline_def.training.calibration import Calibration, calibrate
from pipeline_def.training.checkpoint import remove_checkpoints
from pipeline_def.training.checkpoint_key import checkpoint_dir
from pipeline_def.training.determinism import set_determinism
from pipeline_def.training.distribution.strategy import find_strategy
from pipeline_def.training.distribution.workers import (
    is_chief,
    own_directory,
    wait_for_workers,
    watching_workers,
)
from pipeline_def.training.input_report import report_input
from pipeline_def.training.steps.precision import precision
from pipeline_def.training.tensorboard.log import TrainingLog
from pipeline_def.training.training_input import TrainingInput
from pipeline_def.training.transfer import Training

_LOGGER = logging.getLogger(__name__)

# For TensorFlow Serving; small, as each model that is pushed holds them.
_WARMUP_IMAGES = 4

BuildModel = Callable[[], tf_keras.Model]


def run_fn(fn_args: Any) -> None:
    """Train and export, as TFX's Trainer asks.

    A second attempt goes on where the first one was killed. The checkpoint of a training that is
    over stays until its model is whole at its place, so that no failure on the way there, such as
    a full disk, costs more than the export.

    Args:
        fn_args: `tfx.components.FnArgs`, with the fields of `TrainerConfig` in `custom_config`.
    """
    choices = _read_choices(fn_args)
    _limit_threads()
    strategy = find_strategy(choices.training)
    set_determinism(choices.training, strategy)
    with watching_workers(strategy):
        # TFX looks for the model there, too, on workers that are not the chief.
        fn_args.serving_model_dir = own_directory(fn_args.serving_model_dir, strategy)
        fn_args.model_run_dir = own_directory(fn_args.model_run_dir, strategy)
        _train_and_export(fn_args, choices, strategy)


def _read_choices(fn_args: Any) -> TrainerConfig:
    """Read the configuration; where nobody has chosen a network, one that suits the images."""
    choices = from_dict(TrainerConfig, fn_args.custom_config)
    if choices.model.title != "auto":
        return choices
    choices = dataclasses.replace(choices, model=name_network(choices.model))
    [train] = fn_args.train_files
    choices = fill_in(choices, images=Shards.of_pattern(train).total)
    _LOGGER.info("Network %s, recipe %s.", choices.model.title, choices.training.recipe)
    return choices


def _train_and_export(
    fn_args: Any, choices: TrainerConfig, strategy: tf.distribute.Strategy
) -> None:
    started, run_dir = time.time(), fn_args.model_run_dir
    graph = TransformGraph(fn_args.transform_graph_path)
    data = TrainingInput.find(
        fn_args,
        choices,
        graph.transformed_spec,
        replicas=strategy.num_replicas_in_sync,
    )
    labels = [label.decode() for label in graph.labels]
    build = _builder(data, classes=len(labels))
    with strategy.scope(), precision(choices.training.precision):
        model = build()
    checkpoints = checkpoint_dir(fn_args)
    training = Training(model, data, labels, log_dir=run_dir, checkpoint_dir=checkpoints)
    training.run()
    exported = _copy(model, build) if _differs(model, choices.training.precision) else model
    calibration = None
    if choices.training.calibrate:
        calibration = calibrate(exported, data.read_evaluation(), choices.model.views)
    _describe(training, calibration, started, run_dir)
    save_backbone(exported, os.path.join(run_dir, WEIGHTS_FILE))
    _export(exported, training, fn_args, graph, calibration)
    if choices.export.lite and is_chief(strategy):
        _export_lite(exported, training, fn_args, calibration)
    wait_for_workers(strategy)
    if is_chief(strategy):
        remove_checkpoints(checkpoints)


def _export(
    model: tf_keras.Model,
    training: Training,
    fn_args: Any,
    graph: TransformGraph,
    calibration: Calibration | None,
) -> None:
    """Write what a server loads, and how large it is."""
    data, choices = training.data, training.data.choices
    export_model(
        model,
        graph,
        config=choices.transform,
        directory=fn_args.serving_model_dir,
        views=choices.model.views,
        temperature=calibration.temperature if calibration else 1.0,
    )
    write_warmup(fn_args.serving_model_dir, data.first_images(_WARMUP_IMAGES))
    size = {"parameters": model.count_params(), "bytes": _sum_bytes(fn_args.serving_model_dir)}
    _write(size, fn_args.model_run_dir, MODEL_FILE)


def _export_lite(
    model: tf_keras.Model, training: Training, fn_args: Any, calibration: Calibration | None
) -> None:
    """Write the small versions beside the SavedModel."""
    data, choices = training.data, training.data.choices
    export_lite(
        model,
        choices.export.lite,
        os.path.join(os.path.dirname(fn_args.serving_model_dir), LITE_FOLDER),
        labels=training.labels,
        images=data.draw_images(choices.export.calibration_images),
        config=choices.transform,
        views=choices.model.views,
        temperature=calibration.temperature if calibration else 1.0,
    )


def _limit_threads() -> None:
    if available_cpus() < bound_cpus():
        # It counts the CPUs that the process is bound to, and knows nothing of a container's quota.
        # In one process with earlier steps, its threads may have been started already.
        with contextlib.suppress(RuntimeError):
            tf.config.threading.set_intra_op_parallelism_threads(available_cpus())
            tf.config.threading.set_inter_op_parallelism_threads(available_cpus())


def _builder(data: TrainingInput, *, classes: int) -> BuildModel:
    choices = data.choices
    mean, variance = data.pixel_moments()
    whitened = choices.model.name == "resnet9"
    return functools.partial(
        build_model,
        choices.model,
        size=choices.transform.seen_size,
        classes=classes,
        mean=mean,
        variance=variance,
        patches=data.patch_covariance() if whitened else None,
        seed=choices.training.seed,
    )


def _differs(model: tf_keras.Model, computed_in: str) -> bool:
    """Say whether what is trained is no plain model in float32; TensorFlow saves no other one."""
    spread = any(isinstance(of, tf.distribute.DistributedValues) for of in model.variables)
    return spread or computed_in != "float32"


def _copy(model: tf_keras.Model, build: BuildModel) -> tf_keras.Model:
    """Build `model` again, in float32 as no precision is set any more, with the same weights."""
    copy = build()
    for target, source in zip(copy.variables, model.variables, strict=True):
        target.assign(source.numpy())
    return copy


def _describe(
    training: Training, calibration: Calibration | None, started: float, directory: str
) -> None:
    """Write what the report and the summary of the run show of a training."""
    data = training.data
    # How earlier phases were fed, from features in memory, is of no interest to anyone.
    of_images = training.phases[-1].history
    reading = report_input(of_images, data.choices.input, data.train, data.choices.transform)
    began = datetime.datetime.fromtimestamp(int(started), datetime.UTC)
    facts: dict[str, Any] = {
        "started": began.isoformat(),
        "seconds": time.time() - started,
        "config": {n: v for n, v in to_dict(data.choices).items() if isinstance(v, dict)},
        "phases": [phase.describe() for phase in training.phases],
        "exported": training.exported,
        "calibration": calibration and dataclasses.asdict(calibration),
    }
    _write(training.history, directory, HISTORY_FILE)
    _write(dataclasses.asdict(reading), directory, INPUT_FILE)
    _write(facts, directory, TRAINING_FILE)
    _log_choices(training, facts["config"], directory)


def _log_choices(training: Training, config: Mapping[str, Any], directory: str) -> None:
    """Write all choices, and the metrics of the exported weights, for TensorBoard."""
    [exported] = [phase for phase in training.phases if phase.name == training.exported]
    best = list(exported.history[exported.metric]).index(exported.best)
    metrics = {name: values[best] for name, values in exported.history.items()}
    with TrainingLog(directory, first_epoch=len(training.history[exported.metric])) as log:
        log.write_hyperparameters(config, metrics)


def _sum_bytes(directory: str) -> int:
    """Add up the sizes of all files below a folder, a path or a URL."""
    files = tf.io.gfile.walk(directory)
    return sum(
        tf.io.gfile.stat(os.path.join(folder, name)).length
        for folder, _, names in files
        for name in names
    )


def _write(facts: dict[str, Any], directory: str, name: str) -> None:
    tf.io.gfile.makedirs(directory)
    with tf.io.gfile.GFile(os.path.join(directory, name), "w") as file:
        file.write(json.dumps(facts))

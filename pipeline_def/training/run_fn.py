"""Trainer's run_fn: input, model, training, export; no logic of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import json
import logging
import os
import tempfile
import time
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from components.contract.configuration import from_dict, to_dict
from components.contract.machine import available_cpus, bound_cpus
from components.contract.model_run import HISTORY_FILE, INPUT_FILE, TRAINING_FILE
from components.transform.preprocessing import LABEL_VOCABULARY
from pipeline_def.code_digest import code_digest
from pipeline_def.config.trainer import TrainerConfig
from pipeline_def.model.networks import build_model
from pipeline_def.serving.signatures import export_model
from pipeline_def.training.checkpoint import remove_checkpoints
from pipeline_def.training.input_report import report_input
from pipeline_def.training.log import TrainingLog
from pipeline_def.training.loop import TrainingLoop
from pipeline_def.training.strategy import find_strategy
from pipeline_def.training.training_input import TrainingInput
from pipeline_def.training.workers import (
    is_chief,
    own_directory,
    wait_for_workers,
    watching_workers,
)

# TensorFlow has no file system for these. Not imported from `object_store`: an edit of how stores
# are read is no reason to train again.
_NOT_FOR_TENSORFLOW = ("minio://", "s3://")


def run_fn(fn_args: Any) -> None:
    """Train and export, as TFX's Trainer asks.

    A second attempt goes on where the first one was killed. The checkpoint of a training that is
    over stays until its model is whole at its place, so that no failure on the way there, such as
    a full disk, costs more than the export.

    Args:
        fn_args: `tfx.components.FnArgs`, with the fields of `TrainerConfig` in `custom_config`.
    """
    started = time.time()
    choices = from_dict(TrainerConfig, fn_args.custom_config)
    _prepare_tensorflow(choices.training.seed)
    strategy = find_strategy(choices.training)
    with watching_workers(strategy):
        # TFX looks for the model there, too, on workers that are not the chief.
        fn_args.serving_model_dir = own_directory(fn_args.serving_model_dir, strategy)
        fn_args.model_run_dir = own_directory(fn_args.model_run_dir, strategy)
        _train_and_export(fn_args, choices, strategy, started)


def _train_and_export(
    fn_args: Any, choices: TrainerConfig, strategy: tf.distribute.Strategy, started: float
) -> None:
    graph = tft.TFTransformOutput(fn_args.transform_graph_path)
    data = TrainingInput.find(
        fn_args,
        choices,
        graph.transformed_feature_spec(),
        replicas=strategy.num_replicas_in_sync,
    )
    with strategy.scope():
        model, loop = _build(data, classes=graph.vocabulary_size_by_name(LABEL_VOCABULARY))
    checkpoint_dir, run_dir = _checkpoint_dir(fn_args), fn_args.model_run_dir
    with TrainingLog(run_dir, profile=loop.profiled_steps) as log:
        history = loop.fit(data.read, data.read_evaluation, log=log, checkpoint_dir=checkpoint_dir)
    reading = report_input(history, data.choices.input, data.train, choices.transform)
    _write(history, run_dir, HISTORY_FILE)
    _write(dataclasses.asdict(reading), run_dir, INPUT_FILE)
    _write(_describe_run(choices, started), run_dir, TRAINING_FILE)
    export_model(model, graph, config=choices.transform, directory=fn_args.serving_model_dir)
    wait_for_workers(strategy)
    if is_chief(strategy):
        remove_checkpoints(checkpoint_dir)


def _prepare_tensorflow(seed: int) -> None:
    if available_cpus() < bound_cpus():
        # It counts the CPUs that the process is bound to, and knows nothing of a container's quota.
        # In one process with earlier steps, its threads may have been started already.
        with contextlib.suppress(RuntimeError):
            tf.config.threading.set_intra_op_parallelism_threads(available_cpus())
            tf.config.threading.set_inter_op_parallelism_threads(available_cpus())
    tf_keras.utils.set_random_seed(seed)
    # Otherwise threads add up gradients in the order they happen to finish.
    tf.config.experimental.enable_op_determinism()


def _build(data: TrainingInput, *, classes: int) -> tuple[tf_keras.Model, TrainingLoop]:
    choices = data.choices
    mean, variance = data.pixel_moments()
    model = build_model(
        choices.model,
        size=choices.transform.seen_size,
        classes=classes,
        mean=mean,
        variance=variance,
        seed=choices.training.seed,
    )
    flip_in_step = choices.augmentation.flip and not data.flip_on_host
    loop = TrainingLoop(
        model,
        config=choices.training,
        augmentation=dataclasses.replace(choices.augmentation, flip=flip_in_step),
        batch_size=data.batch_size,
        steps=data.steps,
    )
    return model, loop


def _describe_run(choices: TrainerConfig, started: float) -> dict[str, Any]:
    began = datetime.datetime.fromtimestamp(int(started), datetime.UTC)
    return {
        "started": began.isoformat(),
        "seconds": time.time() - started,
        "config": {n: v for n, v in to_dict(choices).items() if n != "checkpoints"},
    }


def _checkpoint_dir(fn_args: Any) -> str:
    """Name a folder that a second attempt at the same training finds, and no other training.

    The same training has the same data, which the URIs of its artifacts name, configuration and
    code. Where its checkpoints lie makes no difference.
    """
    config = dict(fn_args.custom_config)
    folder = config.pop("checkpoints")
    data = [fn_args.train_files, fn_args.eval_files, fn_args.transform_graph_path]
    facts = [*data, config, code_digest("Trainer")]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    if folder.startswith(_NOT_FOR_TENSORFLOW):
        logging.warning("Checkpoints cannot be kept in %s: they end with this container.", folder)
        folder = os.path.join(tempfile.gettempdir(), "checkpoints")
    return os.path.join(folder, digest)


def _write(facts: dict[str, Any], directory: str, name: str) -> None:
    tf.io.gfile.makedirs(directory)
    with tf.io.gfile.GFile(os.path.join(directory, name), "w") as file:
        file.write(json.dumps(facts))

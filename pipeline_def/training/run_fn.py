"""Trainer's run_fn: wires dataset, model, training and export; no logic of its own."""

from __future__ import annotations

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
from components.contract.model_run import HISTORY_FILE, INPUT_FILE, TRAINING_FILE
from components.transform.preprocessing import LABEL_VOCABULARY
from pipeline_def.config.input import InputConfig
from pipeline_def.config.trainer import TrainerConfig
from pipeline_def.data.cache import resolve_cache
from pipeline_def.data.dataset import make_dataset
from pipeline_def.data.moments import pixel_moments
from pipeline_def.data.read_plan import TrainingOrder
from pipeline_def.data.shards import Shards
from pipeline_def.model.networks import build_model
from pipeline_def.serving.signatures import export_model
from pipeline_def.training.input_report import report_input
from pipeline_def.training.loop import TrainingLoop

# TensorFlow has no file system for these.
_NOT_FOR_TENSORFLOW = ("minio://", "s3://")


def run_fn(fn_args: Any) -> None:
    """Train and export, as TFX's Trainer asks.

    Args:
        fn_args: `tfx.components.FnArgs`, with the fields of `TrainerConfig` in `custom_config`.
    """
    started = time.time()
    choices = from_dict(TrainerConfig, fn_args.custom_config)
    config, images = choices.training, choices.transform
    tf_keras.utils.set_random_seed(config.seed)
    # Otherwise threads add up gradients in the order they happen to finish.
    tf.config.experimental.enable_op_determinism()
    transform_output = tft.TFTransformOutput(fn_args.transform_graph_path)
    train, evaluation = (
        Shards.of_pattern(pattern) for [pattern] in (fn_args.train_files, fn_args.eval_files)
    )
    options = resolve_cache(choices.input, [train, evaluation], images)
    augmentation = choices.augmentation
    # While images are decoded, a flip is nearly free: 128 take 3 ms; in a step on CPU 25 ms. An
    # accelerator does it in no time, and leaves the host to decode.
    flip_on_host = augmentation.flip and not tf.config.list_physical_devices("GPU")
    strategy = _strategy()
    replicas = strategy.num_replicas_in_sync
    batch = max(1, min(config.batch_size, train.total) // replicas) * replicas
    reading = {"config": images, "feature_spec": transform_output.transformed_feature_spec()}

    def read(step: int, part: tf.distribute.InputContext) -> tf.data.Dataset:
        return make_dataset(
            train,
            **reading,
            batch_size=part.get_per_replica_batch_size(batch),
            options=options,
            order=TrainingOrder.of_worker(config.seed, step, part, flip=flip_on_host),
        )

    mean, variance = pixel_moments(
        make_dataset(train, **reading, batch_size=batch, options=InputConfig(cache="none"))
    )
    with strategy.scope():
        model = build_model(
            choices.model,
            size=images.seen_size,
            classes=transform_output.vocabulary_size_by_name(LABEL_VOCABULARY),
            mean=mean,
            variance=variance,
            seed=config.seed,
        )
        loop = TrainingLoop(
            model,
            config=config,
            augmentation=dataclasses.replace(
                augmentation, flip=augmentation.flip and not flip_on_host
            ),
            batch_size=batch,
            steps=train.total // batch,
        )
    history = loop.fit(
        read,
        make_dataset(evaluation, **reading, batch_size=batch, options=options),
        log_dir=fn_args.model_run_dir,
        checkpoint_dir=_checkpoint_dir(fn_args),
    )
    _write(history, fn_args.model_run_dir, HISTORY_FILE)
    reading_report = report_input(history, options, train, images)
    _write(dataclasses.asdict(reading_report), fn_args.model_run_dir, INPUT_FILE)
    _write(_describe_run(choices, started), fn_args.model_run_dir, TRAINING_FILE)
    export_model(model, transform_output, config=images, directory=fn_args.serving_model_dir)


def _describe_run(choices: TrainerConfig, started: float) -> dict[str, Any]:
    began = datetime.datetime.fromtimestamp(int(started), datetime.UTC)
    return {
        "started": began.isoformat(),
        "seconds": time.time() - started,
        "config": {n: v for n, v in to_dict(choices).items() if n != "checkpoints"},
    }


def _checkpoint_dir(fn_args: Any) -> str:
    """Name a folder that a second attempt at the same training finds, and no other training."""
    facts = [fn_args.train_files, fn_args.transform_graph_path, fn_args.custom_config]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    folder = fn_args.custom_config["checkpoints"]
    if folder.startswith(_NOT_FOR_TENSORFLOW):
        logging.warning("Checkpoints cannot be kept in %s: they end with this container.", folder)
        folder = os.path.join(tempfile.gettempdir(), "checkpoints")
    return os.path.join(folder, digest)


def _write(facts: dict[str, Any], directory: str, name: str) -> None:
    with tf.io.gfile.GFile(os.path.join(directory, name), "w") as file:
        file.write(json.dumps(facts))


def _strategy() -> tf.distribute.Strategy:
    several = len(tf.config.list_physical_devices("GPU")) > 1
    return tf.distribute.MirroredStrategy() if several else tf.distribute.get_strategy()

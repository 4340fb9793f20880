"""Trainer's run_fn: wires dataset, model, fit and export; no logic of its own."""

from __future__ import annotations

import functools
import json
import os
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from components.progress import report_progress
from components.shards import count_examples, read_index
from pipeline_def.config import ModelConfig, TrainingConfig
from pipeline_def.dataset import make_dataset, pixel_moments
from pipeline_def.model import build_model
from pipeline_def.serving import export_model
from pipeline_def.transform import LABEL_VOCABULARY

HISTORY_FILE = "history.json"


def run_fn(fn_args: Any) -> None:
    """Train and export, as TFX's Trainer asks.

    Args:
        fn_args: `tfx.components.FnArgs`, with `transform`, `model` and `training`, the sections of
            the configuration, in `custom_config`.
    """
    config = TrainingConfig(**fn_args.custom_config["training"])
    size = fn_args.custom_config["transform"]["size"]
    tf_keras.utils.set_random_seed(config.seed)
    # Otherwise threads add up gradients in the order they happen to finish.
    tf.config.experimental.enable_op_determinism()
    transform_output = tft.TFTransformOutput(fn_args.transform_graph_path)
    spec = transform_output.transformed_feature_spec()
    [train_pattern], [eval_pattern] = fn_args.train_files, fn_args.eval_files
    examples = _count_training_examples(train_pattern)
    batch = min(config.batch_size, examples)
    read = functools.partial(make_dataset, feature_spec=spec, size=size, batch_size=batch)
    mean, variance = pixel_moments(read(train_pattern))
    with _strategy().scope():
        model = build_model(
            ModelConfig(**fn_args.custom_config["model"]),
            size=size,
            classes=transform_output.vocabulary_size_by_name(LABEL_VOCABULARY),
            mean=mean,
            variance=variance,
        )
        _compile(model, config, steps=examples // batch)
    history = model.fit(
        read(train_pattern, training=config),
        epochs=config.epochs,
        steps_per_epoch=examples // batch,
        validation_data=read(eval_pattern),
        callbacks=_callbacks(config, fn_args.model_run_dir),
        verbose=0,
    )
    _write_history(history.history, fn_args.model_run_dir)
    export_model(model, transform_output, size=size, directory=fn_args.serving_model_dir)


def _count_training_examples(train_pattern: str) -> int:
    # Shards lie in <artifact>/Split-train/*, their index in the artifact's own folder.
    index = read_index(os.path.dirname(os.path.dirname(train_pattern)))
    return count_examples(index)["train"]


def _write_history(history: dict[str, list[float]], directory: str) -> None:
    """Write every metric of every epoch as JSON."""
    plain = {name: [float(value) for value in values] for name, values in history.items()}
    with tf.io.gfile.GFile(os.path.join(directory, HISTORY_FILE), "w") as file:
        file.write(json.dumps(plain))


def _strategy() -> tf.distribute.Strategy:
    several = len(tf.config.list_physical_devices("GPU")) > 1
    return tf.distribute.MirroredStrategy() if several else tf.distribute.get_strategy()


def _compile(model: tf_keras.Model, config: TrainingConfig, *, steps: int) -> None:
    schedule = tf_keras.optimizers.schedules.CosineDecay(
        config.learning_rate, decay_steps=config.epochs * steps
    )
    model.compile(
        optimizer=tf_keras.optimizers.Adam(schedule),
        loss=tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[tf_keras.metrics.SparseCategoricalAccuracy("accuracy")],
    )


def _callbacks(config: TrainingConfig, log_dir: str) -> list[tf_keras.callbacks.Callback]:
    def report(epoch: int, logs: dict[str, float]) -> None:
        note = f"accuracy {logs['accuracy']:.3f}, on eval {logs['val_accuracy']:.3f}"
        report_progress(done=epoch + 1, total=config.epochs, unit="epochs", note=note)

    return [
        tf_keras.callbacks.EarlyStopping(
            "val_loss", patience=config.patience, restore_best_weights=True
        ),
        tf_keras.callbacks.TensorBoard(log_dir, write_graph=False),
        tf_keras.callbacks.LambdaCallback(on_epoch_end=report),
    ]

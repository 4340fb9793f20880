"""Trainer's run_fn: from the transformed examples to the exported model.

`preparation.py` resolves the configuration, and finds the images and the network. `loop/train.py`
has phases and epochs, `loop/step.py` the training step, `input/dataset.py` its batches.
`calibration.py` fits a temperature and thresholds, `image_pass.py` describes the images, and
`components/trainer/export` exports the model.
"""

import dataclasses
import logging
import os
import time
from typing import Any

import tensorflow as tf
import tf_keras

from components.contract.configuration import to_dict
from components.contract.example import TRAIN, decode_text
from components.contract.image_tables import open_images
from components.contract.model_files import FORMATS_FOLDER, NETWORK_FILE, WEIGHTS_FILE
from components.host.machine import require_formats
from components.metrics.fold_predictions import FoldPredictions, write_folds, write_learned
from components.metrics.score_metrics import Unknowns
from components.records.shard_files import read_index
from components.storage.folder import write_json
from components.storage.transfer import remove_folder
from components.trainer.config.training import TrainerConfig
from components.trainer.export.formats import export_formats
from components.trainer.export.known import Known, Likeness
from components.trainer.export.signatures import (
    Classifier,
    TransformGraph,
    export_model,
    write_warmup,
)
from components.trainer.image_pass import write_images
from components.trainer.loop.calibration import (
    compile_logits,
    fit_temperature,
    fit_threshold,
    predict_logits,
)
from components.trainer.loop.checkpoint import checkpoint_dir
from components.trainer.loop.folds import Validated, train_with_folds
from components.trainer.loop.known_features import describe_images
from components.trainer.loop.strategy import (
    is_chief,
    mean_of_workers,
    own_directory,
    report_lost_worker,
)
from components.trainer.loop.train import Training
from components.trainer.networks.networks import make_plain
from components.trainer.networks.parts import save_backbone
from components.trainer.preparation import (
    Preparation,
    prepare,
    read_config,
    start_devices,
    take_over,
)
from components.trainer.run_files import describe_model, describe_training
from components.trainer.training_input import TrainingInput

_LOGGER = logging.getLogger(__name__)

# For TensorFlow Serving. Few, as every pushed model contains them.
_WARMUP_IMAGES = 4
# From which the ranges of activations for int8 are measured.
_CALIBRATION_IMAGES = 256


def run_fn(fn_args: Any) -> None:
    """Train and export, as TFX's Trainer asks.

    A second attempt resumes from the last checkpoint of the first. The checkpoint of a completed
    training stays until its model is written, so that a failure on the way, such as a full disk,
    costs no more than the export.

    Args:
        fn_args: `tfx.components.FnArgs`, with the fields of `TrainerConfig` in `custom_config`.
    """
    config = read_config(fn_args)
    require_formats(config.export.formats)
    strategy = start_devices(config)
    with report_lost_worker(strategy):
        # TFX looks for the model there on every worker.
        fn_args.serving_model_dir = own_directory(fn_args.serving_model_dir, strategy)
        fn_args.model_run_dir = own_directory(fn_args.model_run_dir, strategy)
        _train_and_export(fn_args, config, strategy)


def _train_and_export(
    fn_args: Any, config: TrainerConfig, strategy: tf.distribute.Strategy
) -> None:
    started, run_dir = time.time(), fn_args.model_run_dir
    prepared = prepare(fn_args, config, strategy)
    data, graph = prepared.data, prepared.graph
    checkpoints = checkpoint_dir(fn_args)
    search = take_over(config.tuner_run, data, checkpoints) if config.tuner_run else None
    training, validated = _train(prepared, log_dir=run_dir, checkpoints=checkpoints)
    model = make_plain(
        training.model, lambda: prepared.build(config.model), config.training.precision
    )
    classifier = Classifier(model, _find_temperature(model, data, validated))
    classifier, unknowns = _recognize(classifier, training, validated)
    describe_training(
        training,
        classifier.temperature,
        unknowns,
        started=started,
        directory=run_dir,
        folds=validated.describe(training) if validated else None,
        search=search,
    )
    unseen = validated.predict(tuple(map(decode_text, graph.labels))) if validated else None
    picked = "the checkpoint"
    if len(search["trials"]) > 1 if search else fn_args.hyperparameters:
        picked = "the training"
    elif unseen or (config.training.keep == "last" and len(training.phases) == 1):
        picked = ""
    save_backbone(model, os.path.join(run_dir, WEIGHTS_FILE))
    if is_chief(strategy):
        write_images(model, data, labels=graph.labels, directory=run_dir)
    _export(classifier, graph, data, fn_args, unseen, picked=picked)
    if is_chief(strategy):
        _export_formats(classifier, graph, data, fn_args)
    # The chief's process serves the coordination of all workers until they get here.
    mean_of_workers(0.0, strategy)
    if is_chief(strategy):
        remove_folder(checkpoints)


def _train(
    prepared: Preparation, *, log_dir: str, checkpoints: str
) -> tuple[Training, Validated | None]:
    """Train on the train split; or on all images, once folds have judged the recipe."""
    model, data = prepared.model, prepared.data
    if prepared.folds:
        return train_with_folds(
            model, data, folds=prepared.folds, log_dir=log_dir, checkpoint_dir=checkpoints
        )
    training = Training(model, data, log_dir, checkpoints)
    training.run()
    return training, None


def _find_temperature(
    model: tf_keras.Model, data: TrainingInput, validated: Validated | None
) -> float:
    """Fit it, if wanted, to images that were not trained on."""
    if not data.config.training.calibrate:
        return 1.0
    if validated:
        return validated.fit_temperature()
    images = data.read_in_order(data.evaluation)
    return fit_temperature(*predict_logits(compile_logits(model), images))


def _recognize(
    classifier: Classifier, training: Training, validated: Validated | None
) -> tuple[Classifier, Unknowns | None]:
    """Fit what tells known images, its threshold on images that were not trained on."""
    data, rate = training.data, training.data.config.export.false_alarms
    if not rate:
        return classifier, None
    learned = describe_images(training, data.train, phase=training.exported)
    if learned is None:
        return classifier, None
    likeness = Likeness.fit(*learned)
    if validated:
        scores, ids = validated.known_scores(training.exported), validated.images.labels
    else:
        others = describe_images(training, data.evaluation, phase=training.exported)
        assert others
        scores, ids = likeness.score(others[0]), others[1]
    unknowns = fit_threshold(scores[ids >= 0], rate=rate)
    if unknowns.threshold is None:
        return classifier, unknowns
    known = Known(likeness, unknowns.threshold)
    return dataclasses.replace(classifier, known=known), unknowns


def _export(
    classifier: Classifier,
    graph: TransformGraph,
    data: TrainingInput,
    fn_args: Any,
    unseen: FoldPredictions | None,
    *,
    picked: str,
) -> None:
    config, directory = data.config, fn_args.serving_model_dir
    origin = {
        "ingest": read_index(data.train.uri).get("ingest", {}),
        "transform": to_dict(config.transform),
        "model": to_dict(config.model),
        "code": config.code,
    }
    export_model(classifier, graph, config=config.transform, origin=origin, directory=directory)
    images = next(iter(data.read_in_order(data.train)))[0][:_WARMUP_IMAGES]
    write_warmup(directory, [tf.io.encode_png(image).numpy() for image in images])
    if unseen:
        write_folds(directory, unseen)
    elif images := open_images(fn_args.model_run_dir):
        columns = images.read(["sha256", "split"]).to_pydict()
        rows = zip(columns["sha256"], columns["split"], strict=True)
        write_learned(directory, (key for key, split in rows if key and split == TRAIN))
    write_json(os.path.join(directory, NETWORK_FILE), {"picked": picked})
    describe_model(classifier, directory, fn_args.model_run_dir)


def _export_formats(
    classifier: Classifier, graph: TransformGraph, data: TrainingInput, fn_args: Any
) -> None:
    config = data.config
    if config.export.formats:
        export_formats(
            classifier,
            config.export.formats,
            os.path.join(os.path.dirname(fn_args.serving_model_dir), FORMATS_FOLDER),
            labels=[label.decode() for label in graph.labels],
            images=data.draw_images(_CALIBRATION_IMAGES),
            config=config.transform,
            ingest=read_index(data.train.uri).get("ingest", {}),
        )

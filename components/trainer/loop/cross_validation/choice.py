"""Whether a training is cross-validated: few images, splits by hash, and an affordable time."""

import logging
import math

import tensorflow as tf
import tf_keras

from components.contract.example import EVAL
from components.contract.rules_of_thumb import FEW_IMAGES
from components.records.shard_files import read_index
from components.trainer.loop.cross_validation.folds import Validated, train_with_folds
from components.trainer.loop.cross_validation.images import SmallSet
from components.trainer.loop.distribution.workers import has_workers
from components.trainer.loop.phases import Training
from components.trainer.networks.warm_start import WarmStart
from components.trainer.networks.weights_file import read_weights
from components.trainer.training_input import TrainingInput

_LOGGER = logging.getLogger(__name__)

# Of `training.folds: auto`.
_FOLDS, _SECONDS = 5, 300
# Or the fraction of a search that its first trial may take.
_SEARCHED = 0.25
# Fewer prove nothing in any case.
_LEAST_IMAGES = 20

# Multiplications a second on two cores: the own network trained on 300 images of 96 pixels a second
# is at 7e10, networks with depthwise convolutions are slower. The estimate must not depend on the
# machine: the same images and options give the same model everywhere.
_SPEED = 4e10
# A backward pass costs as much as two forward passes.
_PASSES = 3
# Seconds to trace the training step, which the folds share.
_START = 10


def train(
    model: tf_keras.Model,
    data: TrainingInput,
    *,
    log_dir: str,
    checkpoint_dir: str,
    start: WarmStart | None = None,
) -> tuple[Training, Validated | None]:
    """Train on the train split; or on all images, once folds have judged the recipe."""
    if folds := choose_folds(data, model):
        return train_with_folds(
            model, data, folds=folds, log_dir=log_dir, checkpoint_dir=checkpoint_dir
        )
    training = Training(model, data, log_dir=log_dir, checkpoint_dir=checkpoint_dir, start=start)
    training.run()
    return training, None


def choose_folds(data: TrainingInput, model: tf_keras.Model) -> int:
    """Return the number of folds; 0: the eval split selects the epoch."""
    wanted = data.config.training.folds
    if wanted == 0 or (wanted == "auto" and not data.config.judged_by_folds):
        return 0
    folds = _FOLDS if wanted == "auto" else wanted
    if reason := _explain_unfit(data, model.distribute_strategy, folds):
        level = logging.INFO if wanted == "auto" else logging.WARNING
        _LOGGER.log(level, "training.folds is %s, but is not used: %s.", wanted, reason)
        return 0
    if wanted != "auto":
        return wanted
    seconds = estimate_seconds(data, count_multiplications(model))
    if seconds <= max(_SECONDS, _SEARCHED * 60 * (data.config.training.minutes or 0)):
        return _FOLDS
    _LOGGER.warning(
        "The eval split has few images. Cross-validation judges the training on all %d images of "
        "train and eval, and then trains on all, in about %d more minutes on two cores: "
        "--training.folds %d.",
        *(data.train.total + data.evaluation.total, math.ceil(seconds / 60), _FOLDS),
    )
    return 0


def _explain_unfit(data: TrainingInput, strategy: tf.distribute.Strategy, folds: int) -> str:
    """Say as a clause why the images are not divided into folds; "" if they can be."""
    if data.config.export.false_alarms:
        return "export.false_alarms fits its threshold on the eval split"
    if data.config.model.start:
        return "no training could start from a model that was trained on all images"
    index = read_index(data.train.uri)
    if "groups" not in index or EVAL not in index["splits"]:
        return f"there are {FEW_IMAGES:,} images or more, or you have named the eval split"
    if data.train.total + data.evaluation.total < _LEAST_IMAGES:
        return f"there are fewer than {_LEAST_IMAGES} images"
    if data.config.transform.storage == "originals":
        return "transform.storage is originals, which differ between the splits"
    if has_workers(strategy):
        return "several workers share the training"
    weights = data.config.model.weights_file
    if weights and read_weights(weights).network:
        return "the initial weights are those of an earlier training, which may know the images"
    # A fold without images could not be judged.
    units = len(set(SmallSet.read(data).units))
    return f"groups and copies leave only {units} sets of images" if units < folds else ""


def estimate_seconds(data: TrainingInput, multiplications: int) -> float:
    """Estimate how much longer a training with folds takes on two cores."""
    config, images = data.config, data.train.total + data.evaluation.total
    learning = images * (1 - 1 / _FOLDS)
    transfer = config.transfer
    passes = _FOLDS * _PASSES * config.training.epochs
    if config.model.pretrained:
        # The folds share features, which are computed once.
        head = 1 if transfer.cache_features else _FOLDS * transfer.head_epochs
        passes = head + (0 if transfer.unfreeze == "none" else passes)
    return _START + passes * learning * multiplications / _SPEED


def count_multiplications(model: tf_keras.Model) -> int:
    """Count the multiplications of convolutions and dense layers for one image."""
    image = tf.TensorSpec([1, *model.input_shape[1:]], tf.uint8)
    predict = tf.function(lambda images: model(images, training=False), autograph=False)
    total = 0
    for operation in predict.get_concrete_function(image).graph.get_operations():
        if operation.type in ("Conv2D", "MatMul", "DepthwiseConv2dNative"):
            output, kernel = operation.outputs[0].shape, operation.inputs[1].shape
            # Each number takes the part of the kernel that belongs to its channel.
            total += output.num_elements() * kernel.num_elements() // output[-1]
    return total

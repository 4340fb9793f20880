"""Networks of the user: imported by dotted path, and checked."""

import functools
import logging
from typing import Any

import tf_keras
from tf_keras import layers

from components.trainer.config.model import describe_error, import_function, mistake
from components.trainer.networks.layers import Dropout as ResumingDropout

_LOGGER = logging.getLogger(__name__)
_OPTION = "model.build_fn"
_mistake = functools.partial(mistake, _OPTION)


def build_own(path: str, images: Any, classes: int) -> tf_keras.Model:
    """Build the network that `path`, a function of the user, returns.

    The function takes `size`, in pixels, and `classes`, and returns a tf_keras model from `images`,
    uint8 [batch, size, size, 3], to logits [batch, classes].

    Raises:
        ConfigurationError: the function does not exist, fails, or returns something else.
    """
    function = import_function(_OPTION, path)
    try:
        network = function(size=images.shape[1], classes=classes)
    except Exception as error:  # The user's code may raise anything.
        call = f"{function.__name__}(size={images.shape[1]}, classes={classes})"
        raise _mistake(path, f"{call} failed with {describe_error(error)}") from error
    _check_network(network, path)
    expected = f"images, uint8 {list(images.shape)}"
    for taken in getattr(network, "inputs", None) or ():
        if not images.shape.is_compatible_with(taken.shape):
            raise _mistake(path, f"its network takes {list(taken.shape)}, but must take {expected}")
    try:
        logits = layers.Activation("linear", dtype="float32", name="float32")(network(images))
    except Exception as error:  # The user's code may raise anything.
        reason = f"its network does not take {expected}, but fails: {describe_error(error)}"
        raise _mistake(path, reason) from error
    model = tf_keras.Model(images, logits, name=path.rpartition(".")[2])
    if model.output_shape != (None, classes):
        raise _mistake(
            path,
            f"its network returns {list(model.output_shape)}, but must return logits [None, "
            f"{classes}], one for each class",
        )
    _warn_of_generators(model, path)
    return model


def _check_network(network: Any, path: str) -> None:
    if not isinstance(network, tf_keras.Model):
        kind = f"{type(network).__module__.partition('.')[0]}.{type(network).__name__}"
        kind = kind.removeprefix("builtins.")
        raise _mistake(path, f"it returned {kind}, but must return a model of tf_keras")
    for method in ("train_step", "compute_loss"):
        if getattr(type(network), method) is not getattr(tf_keras.Model, method):
            raise _mistake(
                path, f"its network overrides {method}, which training does not call: use add_loss"
            )
    if getattr(network, "compiled_loss", None) is not None:
        _LOGGER.warning("The loss that %s compiles is ignored: training decides about it.", path)
    last = network.layers[-1] if network.layers else None
    activation = getattr(last, "activation", None)
    if isinstance(last, layers.Softmax) or activation is tf_keras.activations.softmax:
        raise _mistake(path, "its network ends with softmax, but must return logits: remove it")


def _warn_of_generators(model: tf_keras.Model, path: str) -> None:
    # Only layers of Keras that draw random numbers themselves have this attribute.
    random = [layer.name for layer in model.submodules if hasattr(layer, "_random_generator")]
    if random:
        _LOGGER.warning(
            "Layer %s of model.build_fn %s draws random numbers that no checkpoint stores: a "
            "resumed training will differ a little from an uninterrupted one. "
            "%s.Dropout resumes exactly.",
            *(random[0], path, ResumingDropout.__module__),
        )

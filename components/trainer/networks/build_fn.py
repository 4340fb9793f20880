"""Networks of the user: imported by dotted path, checked, and divided into backbone and head."""

import functools
import logging
from typing import Any

import tf_keras
from tf_keras import layers

from components.contract.errors import ConfigurationError
from components.trainer.config.model import describe_error, import_function, mistake
from components.trainer.networks.layers import Dropout as ResumingDropout
from components.trainer.networks.parts import join, make_backbone, make_head

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
    model = _divide(network, images, path) or _wrap(network, images, path)
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
                path,
                f"its network overrides {method}, which training does not call: use add_loss",
            )
    if getattr(network, "compiled_loss", None) is not None:
        _LOGGER.warning("The loss that %s compiles is ignored: training decides about it.", path)
    last = network.layers[-1] if network.layers else None
    activation = getattr(last, "activation", None)
    if isinstance(last, layers.Softmax) or activation is tf_keras.activations.softmax:
        raise _mistake(path, "its network ends with softmax, but must return logits: remove it")


def _wrap(network: tf_keras.Model, images: Any, path: str) -> tf_keras.Model:
    """Build a model that cannot be divided, and therefore has no features."""
    try:
        logits = layers.Activation("linear", dtype="float32", name="float32")(network(images))
    except Exception as error:  # The user's code may raise anything.
        raise _not_for_images(images, path, error) from error
    return tf_keras.Model(images, logits, name=path.rpartition(".")[2])


def _divide(network: tf_keras.Model, images: Any, path: str) -> tf_keras.Model | None:
    """Divide a network at its last Dense layer, if it is a chain of layers from there on."""
    dense = _last_dense(network)
    if dense is None:
        return None
    features = dense.input
    while isinstance(before := features.node.layer, layers.Dropout):
        # Dropout belongs to the head, so that features do not vary.
        features = before.input
    if not images.shape.is_compatible_with(network.input_shape):
        raise _mistake(
            path,
            f"its network takes {list(network.input_shape)}, but must take images, uint8 "
            f"{list(images.shape)}",
        )
    inputs = layers.Input(images.shape[1:], dtype="uint8")
    try:
        pixels = tf_keras.Model(network.inputs, features)(inputs)
    except Exception as error:  # The user's code may raise anything.
        raise _not_for_images(images, path, error) from error
    logits = layers.Activation("linear", dtype="float32", name="float32")(network.output)
    head = make_head(features, logits)
    model = join(images, make_backbone(inputs, pixels), head, path.rpartition(".")[2])
    # A branch that only adds a loss lies in neither part.
    left = {layer.name for layer in network.layers} - {part.name for part in model.submodules}
    inputs = set(network.input_names)
    return model if left <= inputs and len(model.losses) == len(network.losses) else None


def _last_dense(network: tf_keras.Model) -> Any:
    """Return the Dense layer that only layers with one input and no weights follow, if any."""
    if not getattr(network, "inputs", None) or len(network.inputs) != 1:
        return None
    tensor = network.output
    while hasattr(tensor, "node"):
        layer = tensor.node.layer
        if isinstance(layer, layers.Dense):
            return layer if len(layer.inbound_nodes) == 1 and tensor.shape.rank == 2 else None
        parents = tensor.node.parent_nodes
        if layer.weights or len(parents) != 1:
            return None
        tensor = parents[0].outputs
    return None


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


def _not_for_images(images: Any, path: str, error: Exception) -> ConfigurationError:
    takes = f"images, uint8 {list(images.shape)}"
    return _mistake(path, f"its network does not take {takes}, but fails: {describe_error(error)}")

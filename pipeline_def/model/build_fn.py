"""Networks of the user: found by their dotted path, checked, and divided into backbone and head."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Callable
from typing import Any, cast

import tf_keras
from tf_keras import layers

from components.contract.errors import ConfigurationError
from pipeline_def.model.parts import join, make_backbone, make_head

_LOGGER = logging.getLogger(__name__)


def build_own(path: str, images: Any, classes: int) -> tf_keras.Model:
    """Build the network of a function of the user.

    Args:
        path: module.function; the function takes `size`, pixels, and `classes`, and returns a
            tf_keras model from uint8 [batch, size, size, 3] to logits [batch, classes].
        images: Keras tensor, uint8 [batch, size, size, 3].
        classes: number of them.

    Raises:
        ConfigurationError: there is no such function, it fails, or returns something else.
    """
    function = find_function(path)
    try:
        network = function(size=images.shape[1], classes=classes)
    except Exception as error:  # It is the user's code.
        raise _mistake(
            path, f"it failed with {type(error).__name__}: {_first_line(error)}"
        ) from error
    _check_network(network, path)
    model = _divide(network, images, path) or _whole(network, images, path)
    if model.output_shape != (None, classes):
        raise _mistake(
            path,
            f"its network returns {list(model.output_shape)}, and it must return logits [None, "
            f"{classes}], one for each class",
        )
    _warn_of_generators(model, path)
    return model


def find_function(path: str) -> Callable[..., Any]:
    """Import the function with a dotted path, from the folder the run was started in as well.

    Raises:
        ConfigurationError: there is no such module or function, or importing it fails.
    """
    module, _, name = path.rpartition(".")
    look_here()
    try:
        function: Any = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise _import_failed(path, error) from error
        raise _mistake(
            path,
            f"there is no module {error.name} in {os.getcwd()} or among the installed packages",
        ) from error
    except Exception as error:  # It is the user's code.
        raise _import_failed(path, error) from error
    if not callable(function):
        raise _mistake(path, f"module {module} has no function {name}")
    return cast("Callable[..., Any]", function)


def look_here() -> None:
    """Let Python find modules in the folder that the run was started in, after all others."""
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())


def _check_network(network: Any, path: str) -> None:
    if not isinstance(network, tf_keras.Model):
        kind = f"{type(network).__module__.partition('.')[0]}.{type(network).__name__}"
        raise _mistake(
            path, f"it returned {kind}, and it must return a tf_keras.Model: import tf_keras there"
        )
    last = network.layers[-1] if network.layers else None
    activation = getattr(last, "activation", None)
    if isinstance(last, layers.Softmax) or activation is tf_keras.activations.softmax:
        raise _mistake(
            path, "its network ends with softmax, and it must return logits: leave it out"
        )


def _whole(network: tf_keras.Model, images: Any, path: str) -> tf_keras.Model:
    """Build a model that cannot be divided; features cannot be taken from it."""
    try:
        logits = layers.Activation("linear", dtype="float32", name="float32")(network(images))
    except Exception as error:  # It is the user's code.
        raise _not_for_images(images, path, error) from error
    return tf_keras.Model(images, logits, name=path.rpartition(".")[2])


def _divide(network: tf_keras.Model, images: Any, path: str) -> tf_keras.Model | None:
    """Divide a network at its last Dense layer, if it is a chain of layers from there on."""
    dense = _last_dense(network)
    if dense is None:
        return None
    features = dense.input
    while isinstance(before := features.node.layer, layers.Dropout):
        # Features do not vary; what is left out in training belongs to the head.
        features = before.input
    if not images.shape.is_compatible_with(network.input_shape):
        raise _mistake(
            path,
            f"its network takes {list(network.input_shape)}, and it must take images, uint8 "
            f"{list(images.shape)}",
        )
    inputs = layers.Input(images.shape[1:], dtype="uint8")
    try:
        pixels = tf_keras.Model(network.inputs, features)(inputs)
    except Exception as error:  # Its input may be of any shape.
        raise _not_for_images(images, path, error) from error
    logits = layers.Activation("linear", dtype="float32", name="float32")(network.output)
    head = make_head(features, logits)
    return join(images, make_backbone(inputs, pixels), head, path.rpartition(".")[2])


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
    # Only layers of Keras that draw random numbers by themselves have this.
    drawing = [layer.name for layer in model.submodules if hasattr(layer, "_random_generator")]
    if drawing:
        _LOGGER.warning(
            "Layer %s of model.build_fn %s draws random numbers that no checkpoint holds: a "
            "training that is killed and goes on will differ a little from one that was not. "
            "Dropout of pipeline_def.model.layers goes on exactly.",
            drawing[0],
            path,
        )


def _import_failed(path: str, error: Exception) -> ConfigurationError:
    module = path.rpartition(".")[0]
    reason = f"{type(error).__name__}: {_first_line(error)}"
    return _mistake(path, f"importing {module} failed with {reason}")


def _not_for_images(images: Any, path: str, error: Exception) -> ConfigurationError:
    return _mistake(
        path,
        f"its network does not take images, uint8 {list(images.shape)}, which failed with "
        f"{type(error).__name__}: {_first_line(error)}",
    )


def _mistake(path: str, reason: str) -> ConfigurationError:
    return ConfigurationError(f"model.build_fn is {path!r}: {reason}.")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or "no message").splitlines()[0].rstrip(".")

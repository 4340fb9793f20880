"""Augmentation by a function of the user, which `augmentation.fn` names."""

import inspect

import tensorflow as tf

from components.images.options import CHANNELS
from pipeline_def.config.functions import describe_error, import_function, mistake

_OPTION = "augmentation.fn"
_SEED = "seed"


def apply_own(images: tf.Tensor, *, seed: tf.Tensor, path: str | None) -> tf.Tensor:
    """Apply the user's function to uint8 [batch, height, width, 3]; return the same.

    Raises:
        ConfigurationError: it fails, or returns images of another shape or type.
    """
    if path is None:
        return images
    function = import_function(_OPTION, path)
    try:
        given = {_SEED: seed} if _SEED in inspect.signature(function).parameters else {}
        # Traced by itself, so that AutoGraph converts conditions and loops.
        changed = tf.function(function)(images, **given)
        changed = tf.convert_to_tensor(changed)
    except Exception as error:  # The user's code may raise anything.
        # AutoGraph puts a traceback before the error.
        problem = (str(error).strip() or type(error).__name__).splitlines()[-1].strip(" .")
        raise mistake(_OPTION, path, f"it failed with {problem}") from error
    fits = changed.shape.is_compatible_with(images.shape)
    if not fits or not (changed.dtype.is_floating or changed.dtype == tf.uint8):
        expected, found = (f"{list(one.shape)}" for one in (images, changed))
        reason = f"it returned {changed.dtype.name} {found}, but must return uint8 or float"
        raise mistake(_OPTION, path, f"{reason} {expected}")
    if changed.dtype != tf.uint8:
        changed = tf.saturate_cast(tf.round(changed), tf.uint8)
    return tf.ensure_shape(changed, images.shape)


def check_own(path: str | None, *, size: int) -> None:
    """Raise the errors of `apply_own` for noise of `size` pixels.

    Also if it drops images, or returns values from 0 to 1, which would be black.
    """

    @tf.function(autograph=False)
    def apply(images: tf.Tensor) -> tf.Tensor:
        return apply_own(images, seed=tf.zeros([2], tf.int64), path=path)

    if path is None:
        return
    shape = [2, size, size, CHANNELS]
    noise = tf.random.stateless_uniform(shape, [0, 0], 0, 256, tf.int32)
    try:
        apply.get_concrete_function(tf.TensorSpec([None, *shape[1:]], tf.uint8))
        changed = apply(tf.cast(noise, tf.uint8)).numpy()
    except tf.errors.OpError as error:
        raise mistake(_OPTION, path, f"it failed with {describe_error(error)}") from error
    if len(changed) != shape[0]:
        raise mistake(_OPTION, path, f"it returned {len(changed)} images for {shape[0]}")
    if changed.max() <= 1:
        raise mistake(_OPTION, path, "it returned values from 0 to 1, but must return 0 to 255")

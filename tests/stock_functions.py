"""What a user of TFX's own Transform and Trainer writes, for the records of ImageExampleGen."""

from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras
from tfx_bsl.public.tfxio import TensorFlowDatasetOptions

from components.contract.example import ENCODED, LABEL

SIDE = 8
BATCH = 16


def preprocessing_fn(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Decode and shrink the images, and number the labels."""

    def decode(encoded: tf.Tensor) -> tf.Tensor:
        image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
        return tf.image.resize(image, [SIDE, SIDE]) / 255.0

    pixels = tf.map_fn(decode, tf.reshape(inputs[ENCODED], [-1]), fn_output_signature=tf.float32)
    return {
        "pixels": tf.ensure_shape(pixels, [None, SIDE, SIDE, 3]),
        "label": tft.compute_and_apply_vocabulary(tf.reshape(inputs[LABEL], [-1])),
    }


def run_fn(fn_args: Any) -> None:
    """Fit one layer for an epoch, and save it."""
    schema = tft.TFTransformOutput(fn_args.transform_output).transformed_metadata.schema
    options = TensorFlowDatasetOptions(batch_size=BATCH, num_epochs=1, label_key="label")
    train, evaluation = (
        fn_args.data_accessor.tf_dataset_factory(files, options, schema)
        for files in (fn_args.train_files, fn_args.eval_files)
    )
    images = tf_keras.Input([SIDE, SIDE, 3], name="pixels")
    logits = tf_keras.layers.Dense(3)(tf_keras.layers.Flatten()(images))
    model = tf_keras.Model({"pixels": images}, logits)
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss)
    model.fit(train, validation_data=evaluation, verbose=0)
    tf.saved_model.save(model, fn_args.serving_model_dir)

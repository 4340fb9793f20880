"""Converts a SavedModel: `conversion_process.py KIND MODEL IMAGES MANIFEST FILE`.

It is a process of its own, run by its path, because TensorFlow's converter aborts the
process at an operation that LiteRT lacks, which would end a training without a model.
"""

import json
import os
import sys
from typing import Any

import numpy as np

# ONNX Runtime 1.12 and OpenVINO 2023 run it.
_OPSET = 17


def convert(kind: str, model: str, images: str, manifest: str, file: str) -> None:
    """Convert the SavedModel in the folder `model` to `onnx`, or to a version for LiteRT.

    `images` is a file of an array, uint8 [images, size, size, 3], to calibrate ranges; `manifest`
    becomes metadata of the ONNX model.
    """
    if kind == "onnx":
        _convert_to_onnx(model, manifest, file)
        return
    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_saved_model(model, signature_keys=["serving_default"])
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if kind == "int8":
        # Reject operations that need more than 8 bits.
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        some = np.load(images)
        converter.representative_dataset = lambda: ([image[np.newaxis]] for image in some)
    with open(file, "wb") as target:
        target.write(converter.convert())


def _convert_to_onnx(model: str, manifest: str, file: str) -> None:
    import onnx
    import onnxruntime
    import tensorflow as tf
    import tf2onnx

    _allow_inlining(os.path.join(model, "saved_model.pb"))
    loaded = tf.saved_model.load(model)
    spec = tf.TensorSpec([None, None, None, 3], tf.uint8, name="images")
    converted, _ = tf2onnx.convert.from_function(
        loaded.answer,
        input_signature=[spec],
        opset=_OPSET,
        custom_op_handlers={"Erfc": (_convert_erfc, [])},
    )
    # What layers such as Normalization have captured would have to be fed with each image.
    captured = loaded.answer.get_concrete_function(spec).captured_inputs
    constants = [tensor.numpy() for tensor in captured if tensor.dtype != tf.resource]
    for values, given in zip(constants, converted.graph.input[1:], strict=True):
        converted.graph.initializer.append(onnx.numpy_helper.from_array(values, given.name))
    del converted.graph.input[1:]
    sides = converted.graph.input[0].type.tensor_type.shape.dim[1:3]
    sides[0].dim_param, sides[1].dim_param = "height", "width"
    for tensor in (converted.graph.input[0], *converted.graph.output):
        tensor.type.tensor_type.shape.dim[0].dim_param = "batch"
    with open(manifest, encoding="utf-8") as facts:
        texts = {name: json.dumps(value) for name, value in json.load(facts).items()}
    onnx.helper.set_model_props(converted, texts)
    onnx.save(converted, file)
    # Fails for operations that the runtime lacks.
    onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])


def _convert_erfc(context: Any, node: Any, name: str, _: Any) -> None:
    """Write 1 - erf(x), as ONNX has no Erfc: TensorFlow 2.21 computes GELU by it."""
    from tf2onnx import utils

    output = node.output[0]
    form = {"shapes": [context.get_shape(output)], "dtypes": [context.get_dtype(output)]}
    number = utils.map_onnx_to_numpy_type(context.get_dtype(output))
    one = context.make_const(utils.make_name("one"), np.ones((), number))
    erf = context.make_node("Erf", node.input, **form)
    context.remove_node(name)
    terms = [one.output[0], erf.output[0]]
    context.make_node("Sub", terms, name=name, outputs=[output], **form)


def _allow_inlining(path: str) -> None:
    """Keras compiles grouped convolutions for XLA, which keeps them in functions of their own."""
    from tensorflow.core.protobuf import saved_model_pb2

    with open(path, "rb") as file:
        saved = saved_model_pb2.SavedModel.FromString(file.read())
    for graph in saved.meta_graphs:
        for function in graph.graph_def.library.function:
            for owner in (function, *function.node_def):
                owner.attr.pop("_XlaMustCompile", None)
    with open(path, "wb") as file:
        file.write(saved.SerializeToString())


if __name__ == "__main__":
    convert(*sys.argv[1:])

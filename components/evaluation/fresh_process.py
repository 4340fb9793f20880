"""Loads a SavedModel and predicts images, in a process independent of the training code.

Run by path, as `fresh_process.py MODEL IMAGES PREDICTIONS`: it imports none of our modules, and
loads the model into a session as TensorFlow Serving does. IMAGES is a JSON list of base64 files.
"""

import base64
import importlib
import importlib.util
import json
import os
import sys
import types
from typing import Any

_WHOLE = "--whole-tensorflow"
_SIGNATURE, _INPUT = "serving_default", "image_bytes"
_OUTPUTS = ("labels", "probabilities")


def predict(model: str, images: str, predictions: str) -> None:
    """Predict images; write labels, [classes], and probabilities, [images, classes]."""
    with open(images, encoding="utf-8") as file:
        encoded = [base64.b64decode(text) for text in json.load(file)]
    from tensorflow.python.client import session
    from tensorflow.python.framework import ops
    from tensorflow.python.saved_model import loader

    with ops.Graph().as_default() as graph, session.Session(graph=graph) as loaded:
        signature = loader.load(loaded, ["serve"], model).signature_def[_SIGNATURE]
        outputs = {name: signature.outputs[name].name for name in _OUTPUTS}
        answer: Any = loaded.run(outputs, {signature.inputs[_INPUT].name: encoded})
    with open(predictions, "w", encoding="utf-8") as file:
        labels = [label.decode("utf-8", "surrogateescape") for label in answer["labels"][0]]
        json.dump({"labels": labels, "probabilities": answer["probabilities"].tolist()}, file)


def _leave_out_most_of_tensorflow() -> None:
    """Make TensorFlow's modules importable without running its `__init__`.

    That would import everything, Keras too: 5.1 s of CPU time on a 2-core machine. The modules that
    load and run a graph take 0.9 s.
    """
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.submodule_search_locations is None:
        return
    package = types.ModuleType("tensorflow")
    package.__path__ = list(spec.submodule_search_locations)
    package.__spec__ = spec
    sys.modules["tensorflow"] = package


def _main(arguments: list[str]) -> None:
    if _WHOLE in arguments:
        arguments.remove(_WHOLE)
    else:
        _leave_out_most_of_tensorflow()
        try:
            importlib.import_module("tensorflow.python.saved_model.loader")
        except Exception:  # This version of TensorFlow needs its `__init__`.
            os.execv(sys.executable, [sys.executable, __file__, _WHOLE, *arguments])
    predict(*arguments)


if __name__ == "__main__":
    _main(sys.argv[1:])

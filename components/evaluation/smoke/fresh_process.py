"""Loads a SavedModel and answers images, in a process that knows nothing of what made it.

Run by its path, as `fresh_process.py MODEL IMAGES ANSWERS`: it imports nothing of ours, and loads
the model as TensorFlow Serving does, into a session. IMAGES is a list of files in base64, JSON.
"""

from __future__ import annotations

import base64
import ctypes
import importlib
import importlib.util
import json
import os
import signal
import sys
import types
from typing import Any

_WHOLE = "--whole-tensorflow"
_PR_SET_PDEATHSIG = 1
_SIGNATURE, _INPUT = "serving_default", "image_bytes"
_OUTPUTS = ("labels", "probabilities")


def answer(model: str, images: str, answers: str) -> None:
    """Answer the images of a file; write labels, [classes], and probabilities, [images, classes].

    Args:
        model: folder of the SavedModel, a path or a URL.
        images: file to read.
        answers: file to write, JSON.
    """
    with open(images, encoding="utf-8") as file:
        encoded = [base64.b64decode(text) for text in json.load(file)]
    from tensorflow.python.client import session
    from tensorflow.python.framework import ops
    from tensorflow.python.saved_model import loader

    with ops.Graph().as_default() as graph, session.Session(graph=graph) as loaded:
        signature = loader.load(loaded, ["serve"], model).signature_def[_SIGNATURE]
        outputs = {name: signature.outputs[name].name for name in _OUTPUTS}
        found: Any = loaded.run(outputs, {signature.inputs[_INPUT].name: encoded})
    with open(answers, "w", encoding="utf-8") as file:
        labels = [label.decode("utf-8", "surrogateescape") for label in found["labels"][0]]
        json.dump({"labels": labels, "probabilities": found["probabilities"].tolist()}, file)


def _leave_out_most_of_tensorflow() -> None:
    """Let imports of TensorFlow's modules find them without running its `__init__`.

    That imports all of its Python, Keras too: 5.1 s of CPU time on a 2-core machine, where the
    modules that load and run a graph take 0.9 s.
    """
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.submodule_search_locations is None:
        return
    package = types.ModuleType("tensorflow")
    package.__path__ = list(spec.submodule_search_locations)
    package.__spec__ = spec
    sys.modules["tensorflow"] = package


def _end_with_parent() -> None:
    """Have the system kill this process when the one that started it has ended, however it did.

    Source: PR_SET_PDEATHSIG in prctl(2); other systems than Linux have nothing like it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _main(arguments: list[str]) -> None:
    if _WHOLE in arguments:
        arguments.remove(_WHOLE)
    else:
        _leave_out_most_of_tensorflow()
        try:
            importlib.import_module("tensorflow.python.saved_model.loader")
        except Exception:  # Of another version of TensorFlow, which cannot do without.
            os.execv(sys.executable, [sys.executable, __file__, _WHOLE, *arguments])
    answer(*arguments)


if __name__ == "__main__":
    _end_with_parent()
    _main(sys.argv[1:])

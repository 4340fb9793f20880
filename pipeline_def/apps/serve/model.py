"""A pushed model in memory. This is the only module of the server that needs TensorFlow."""

import gc
import io
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from PIL import Image

from components.predict.model import (
    DEFAULT_SIGNATURE,
    INPUT,
    ImageModel,
    find_reason,
    import_quietly,
)
from pipeline_def.apps.serve.batching import Prediction
from pipeline_def.apps.serve.limits import RequestError


class Model:
    """A TensorFlow SavedModel, with the signatures that take only image files."""

    version: str
    """Name of its folder, a number."""
    signatures: Mapping[str, Any]
    """Signature → its description in TensorFlow Serving's metadata."""
    served_outputs: Mapping[str, Collection[str]]
    """Signature that takes only image files → names of its outputs."""
    labels: Sequence[str] = ()
    """Labels that it can answer with, if it names them."""

    def __init__(self, path: str) -> None:
        """Load and warm up the model, which takes a second or two.

        Raises:
            RequestError: a signature fails.
        """
        import_quietly()
        self.version = os.path.basename(path)
        self._model = ImageModel(path)
        self.signatures = describe_signatures(path)
        self.served_outputs = self._model.outputs
        self._warm_up()
        # A full collection would hold up all requests for 0.2 s, as TensorFlow has many objects.
        # What is dropped with an earlier version goes now.
        gc.unfreeze()
        gc.collect()
        gc.freeze()

    def predict(self, signature: str, files: Sequence[bytes]) -> list[Prediction]:
        """Return the prediction of each file.

        Raises:
            RequestError: one cannot be predicted.
        """
        try:
            outputs = self._model.predict(signature, files)
        except self._model.errors.OpError as error:
            raise RequestError(400, find_reason(error)) from error
        columns = {}
        for name, values in sorted(outputs.items()):
            # Of float32 the shortest decimal that round-trips.
            exact = values.astype(str).astype(float) if values.dtype == "float32" else values
            columns[name] = exact.tolist()
        return [
            {name: values[row] for name, values in columns.items()} for row in range(len(files))
        ]

    def _warm_up(self) -> None:
        """Predict once with each signature, because the first call is the slowest."""
        if DEFAULT_SIGNATURE not in self.served_outputs:
            raise RequestError(500, f"it has no signature {DEFAULT_SIGNATURE} that takes {INPUT}.")
        buffer = io.BytesIO()
        Image.new("RGB", (64, 48), "gray").save(buffer, "PNG")
        for signature in self.served_outputs:
            [row] = self.predict(signature, [buffer.getvalue()])
            self.labels = self.labels or [name.decode() for name in row.get("labels", ())]


def describe_signatures(path: str) -> dict[str, Any]:
    """Return the signatures of a SavedModel as the JSON of `SignatureDef`."""
    from google.protobuf import json_format
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel()
    with open(os.path.join(path, "saved_model.pb"), "rb") as file:
        saved.ParseFromString(file.read())
    signatures = saved.meta_graphs[0].signature_def
    return {
        # Defaults such as `unknown_rank`, too, as TensorFlow Serving has them: the first option,
        # whose name depends on the version of protobuf.
        name: json_format.MessageToDict(signature, True, preserving_proto_field_name=True)
        for name, signature in signatures.items()
        if not name.startswith("__")
    }

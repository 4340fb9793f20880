"""Reads the output of TensorFlow Transform, which nothing else in training and serving imports."""

from collections.abc import Callable
from typing import Any

import tensorflow_transform as tft
from tensorflow_transform.saved.saved_transform_io_v2 import SavedModelLoader

from components.contract.example import LABEL_VOCABULARY


class TransformGraph:
    """The artifact `transform_graph`: feature specs, labels, and the graph itself."""

    def __init__(self, uri: str) -> None:
        """Read the folder `uri`."""
        self._output = tft.TFTransformOutput(uri)
        self.labels: list[bytes] = self._output.vocabulary_by_name(LABEL_VOCABULARY)
        """Text of each label id."""
        self.transformed_spec: dict[str, Any] = self._output.transformed_feature_spec()
        """Feature spec of transformed examples."""
        self.raw_spec: dict[str, Any] = self._output.raw_feature_spec()
        """Feature spec of raw examples."""

    def load(self) -> tuple[Callable[..., Any], dict[str, Any]]:
        """Return the graph as a function, and the objects to save with its callers."""
        loader = SavedModelLoader(self._output.transform_savedmodel_dir)
        return loader.apply_transform_model, vars(loader)

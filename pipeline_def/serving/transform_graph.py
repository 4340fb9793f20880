"""What TensorFlow Transform has written; the only module of training and serving that needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform.saved.saved_transform_io_v2 import SavedModelLoader

from components.transform.config import LABEL_VOCABULARY

Apply = Callable[[Mapping[str, tf.Tensor]], Mapping[str, tf.Tensor]]
"""From raw features, each [batch, 1], to transformed ones."""


class TransformGraph:
    """The artifact `transform_graph`: specs of features, labels, and the graph itself."""

    def __init__(self, uri: str) -> None:
        """Read what lies in the folder `uri`."""
        self._output = tft.TFTransformOutput(uri)
        self.labels: list[bytes] = self._output.vocabulary_by_name(LABEL_VOCABULARY)
        """The label of each label id."""

    @property
    def transformed_spec(self) -> dict[str, Any]:
        """How transformed examples are parsed: name of a feature → its spec."""
        spec: dict[str, Any] = self._output.transformed_feature_spec()
        return spec

    @property
    def raw_spec(self) -> dict[str, Any]:
        """How raw examples are parsed, likewise."""
        spec: dict[str, Any] = self._output.raw_feature_spec()
        return spec

    def load(self) -> tuple[Apply, dict[str, Any]]:
        """Return the graph as a function, and what has to be saved with whatever calls it."""
        loader = SavedModelLoader(self._output.transform_savedmodel_dir)
        return loader.apply_transform_model, vars(loader)

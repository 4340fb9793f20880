"""AnomalyGate: stops the run when ExampleValidator found anomalies, and names them.

ExampleValidator by itself only records a property; every node after it would run all the same.
"""

# No `from __future__ import annotations` here: TFX reads the annotations as objects.
import os

import tensorflow as tf
from tensorflow_metadata.proto.v0 import anomalies_pb2
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputDict
from tfx.dsl.component.experimental.decorators import component
from tfx.types import artifact_utils, standard_artifacts

from components.errors import UserError

_NAMED_ANOMALIES = 5


def describe_anomalies(anomalies: anomalies_pb2.Anomalies) -> list[str]:
    """Say each anomaly of a split in words."""
    found = []
    if anomalies.HasField("dataset_anomaly_info"):
        found.append(f"dataset: {anomalies.dataset_anomaly_info.description.rstrip('.')}")
    for feature, info in sorted(anomalies.anomaly_info.items()):
        found.append(f"{feature}: {info.description.rstrip('.')}")
    return found


def read_anomalies(artifact: standard_artifacts.ExampleAnomalies) -> dict[str, list[str]]:
    """Read what ExampleValidator found: split → anomalies in words."""
    found = {}
    for split in artifact_utils.decode_split_names(artifact.split_names):
        path = os.path.join(artifact_utils.get_split_uri([artifact], split), "SchemaDiff.pb")
        anomalies = anomalies_pb2.Anomalies()
        with tf.io.gfile.GFile(path, "rb") as file:
            anomalies.ParseFromString(file.read())
        found[split] = describe_anomalies(anomalies)
    return found


@component
def AnomalyGate(
    anomalies: InputArtifact[standard_artifacts.ExampleAnomalies],
) -> OutputDict(passed=int):  # type: ignore[valid-type]
    """Let the run go on when no split has anomalies.

    Raises:
        UserError: names the anomalies of every split.
    """
    found = read_anomalies(anomalies)
    named = [f"{split}: {text}" for split, texts in sorted(found.items()) for text in texts]
    if named:
        more = len(named) - _NAMED_ANOMALIES
        raise UserError(
            f"The examples do not fit their schema: {' | '.join(named[:_NAMED_ANOMALIES])}"
            f"{f' | and {more} more' if more > 0 else ''}. Repair the images or their folders."
        )
    return {"passed": 1}

"""Anomalies of the data, as TFX's ExampleValidator writes them."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tensorflow_metadata.proto.v0 import anomalies_pb2

from components.contract.artifact_files import open_file

_Info: TypeAlias = anomalies_pb2.AnomalyInfo


@dataclass(frozen=True)
class Anomaly:
    """A problem of a split."""

    split: str
    feature: str
    """Name of the feature, or "dataset"."""
    text: str
    kind: Literal["anomaly", "drift"]
    """anomaly: violates the schema. drift: differs from the previous span or the train split."""

    def __str__(self) -> str:
        return f"{self.split}: {self.feature}: {self.text}"


def read_anomalies(uri: str, split_names: str) -> dict[str, list[Anomaly]]:
    """Read what ExampleValidator found: split → anomalies, both sorted.

    `split_names` is a JSON list, as in the property of TFX's artifacts.
    """
    by_split = {}
    for split in sorted(json.loads(split_names or "[]")):
        path = os.path.join(uri, f"Split-{split}", "SchemaDiff.pb")
        with open_file(path, "rb") as file:
            anomalies = anomalies_pb2.Anomalies.FromString(file.read())
        by_split[split] = list(list_anomalies(anomalies, split))
    return by_split


def list_anomalies(anomalies: anomalies_pb2.Anomalies, split: str) -> Iterator[Anomaly]:
    """Yield an anomaly for each reason: the dataset first, then by feature."""
    infos = sorted(anomalies.anomaly_info.items())
    if anomalies.HasField("dataset_anomaly_info"):
        infos = [("dataset", anomalies.dataset_anomaly_info), *infos]
    for feature, info in infos:
        for reason in info.reason or [_Info.Reason(description=info.description)]:
            drift = _Info.Type.Name(reason.type).startswith("COMPARATOR_")
            text = reason.description.strip().rstrip(".")
            yield Anomaly(split, feature, text, "drift" if drift else "anomaly")

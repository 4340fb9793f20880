"""What ExampleValidator found, one by one, in words, with the severity that the choices give it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tensorflow_metadata.proto.v0 import anomalies_pb2
from tfx import types
from tfx.components.example_validator.executor import DEFAULT_FILE_NAME
from tfx.dsl.io import fileio
from tfx.types import artifact_utils

from components.validation.config import ValidationConfig

_DATASET = "dataset"

_Info: TypeAlias = anomalies_pb2.AnomalyInfo


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a split."""

    split: str
    feature: str
    """Or "dataset"."""
    text: str
    kind: Literal["anomaly", "drift"]
    """anomaly: against the schema. drift: moved from the span before, or from the train split."""

    def __str__(self) -> str:
        return f"{self.split}: {self.feature}: {self.text}"

    def stops(self, config: ValidationConfig) -> bool:
        """Say whether the run must stop for it."""
        return (config.anomalies if self.kind == "anomaly" else config.drift) == "stop"


def read_findings(artifact: types.Artifact) -> list[Finding]:
    """Read what ExampleValidator wrote, sorted by split and feature."""
    found: list[Finding] = []
    for split in sorted(artifact_utils.decode_split_names(artifact.split_names)):
        path = os.path.join(artifact_utils.get_split_uri([artifact], split), DEFAULT_FILE_NAME)
        with fileio.open(path, "rb") as file:
            found += list_findings(anomalies_pb2.Anomalies.FromString(file.read()), split)
    return found


def list_findings(anomalies: anomalies_pb2.Anomalies, split: str) -> Iterator[Finding]:
    """Yield a finding for each reason of each anomaly."""
    if anomalies.HasField("dataset_anomaly_info"):
        yield from _of_feature(split, _DATASET, anomalies.dataset_anomaly_info)
    for feature, info in sorted(anomalies.anomaly_info.items()):
        yield from _of_feature(split, feature, info)


def _of_feature(split: str, feature: str, info: _Info) -> Iterator[Finding]:
    for reason in info.reason or [_Info.Reason(description=info.description)]:
        drift = _Info.Type.Name(reason.type).startswith("COMPARATOR_")
        text = reason.description.strip().rstrip(".")
        yield Finding(split, feature, text, "drift" if drift else "anomaly")


def read_anomalies(artifact: types.Artifact) -> dict[str, list[str]]:
    """Read all findings, drift among them: split → texts, which begin with the feature."""
    splits = sorted(artifact_utils.decode_split_names(artifact.split_names))
    texts: dict[str, list[str]] = {split: [] for split in splits}
    for finding in read_findings(artifact):
        texts[finding.split].append(f"{finding.feature}: {finding.text}")
    return texts


def describe_warnings(artifact: types.Artifact, config: ValidationConfig) -> list[str]:
    """Say what was found for which a run goes on all the same."""
    return [str(finding) for finding in read_findings(artifact) if not finding.stops(config)]

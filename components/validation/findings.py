"""Findings of ExampleValidator, with the severity that the configuration gives them."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from tensorflow_metadata.proto.v0 import anomalies_pb2

from components.contract.artifact_files import open_file
from components.contract.properties import ArtifactLike
from components.validation.config import ValidationConfig

_MAX_NAMED = 5
# The file name that TFX uses.
_FILE = "SchemaDiff.pb"

_Info: TypeAlias = anomalies_pb2.AnomalyInfo


@dataclass(frozen=True)
class Finding:
    """A problem of a split."""

    split: str
    feature: str
    """Name of the feature, or "dataset"."""
    text: str
    kind: Literal["anomaly", "drift"]
    """anomaly: violates the schema. drift: differs from the previous span or the train split."""

    def __str__(self) -> str:
        return f"{self.split}: {self.feature}: {self.text}"

    def stops(self, config: ValidationConfig) -> bool:
        """Return whether the finding stops the run."""
        return (config.anomalies if self.kind == "anomaly" else config.drift) == "stop"


def list_findings(anomalies: anomalies_pb2.Anomalies, split: str) -> Iterator[Finding]:
    """Yield a finding for each reason of each anomaly: the dataset first, then by feature."""
    infos = sorted(anomalies.anomaly_info.items())
    if anomalies.HasField("dataset_anomaly_info"):
        infos = [("dataset", anomalies.dataset_anomaly_info), *infos]
    for feature, info in infos:
        for reason in info.reason or [_Info.Reason(description=info.description)]:
            drift = _Info.Type.Name(reason.type).startswith("COMPARATOR_")
            text = reason.description.strip().rstrip(".")
            yield Finding(split, feature, text, "drift" if drift else "anomaly")


def explain_stop(findings: Sequence[Finding]) -> str:
    """Explain why a run stops and what to do."""
    kinds = {finding.kind for finding in findings}
    wrong = "do not fit their schema" if "anomaly" in kinds else "have changed"
    named = " | ".join(map(str, findings[:_MAX_NAMED]))
    more = len(findings) - _MAX_NAMED
    ways = []
    if "anomaly" in kinds:
        ways.append("Correct the images or their folders, or the schema if they are right")
    if "drift" in kinds:
        ways.append("If the change is intended, run once with --validation.drift warn")
    return (
        f"The examples {wrong}: {named}{f' | and {more} more' if more > 0 else ''}. "
        f"{'. '.join(ways)}."
    )


class AnomalyFiles(NamedTuple):
    """Location of anomalies, for callers without a TFX artifact."""

    uri: str
    split_names: str


def read_findings(artifact: ArtifactLike) -> list[Finding]:
    """Read the findings of ExampleValidator, sorted by split and feature."""
    return [finding for found in _read(artifact).values() for finding in found]


def _read(artifact: ArtifactLike) -> dict[str, list[Finding]]:
    findings = {}
    for split in sorted(json.loads(artifact.split_names or "[]")):
        with open_file(os.path.join(artifact.uri, f"Split-{split}", _FILE), "rb") as file:
            anomalies = anomalies_pb2.Anomalies.FromString(file.read())
        findings[split] = list(list_findings(anomalies, split))
    return findings


def read_anomalies(artifact: ArtifactLike) -> dict[str, list[str]]:
    """Return split → texts of all findings, including drift, each prefixed with the feature."""
    return {
        split: [f"{finding.feature}: {finding.text}" for finding in found]
        for split, found in _read(artifact).items()
    }


def describe_warnings(artifact: ArtifactLike, config: ValidationConfig) -> list[str]:
    """Describe the findings that do not stop the run."""
    return [str(finding) for finding in read_findings(artifact) if not finding.stops(config)]

"""One thing that ExampleValidator found, with the severity that the configuration gives it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tensorflow_metadata.proto.v0 import anomalies_pb2

from components.validation.config import ValidationConfig

_NAMED = 5

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
        """Return whether the run must stop for it."""
        return (config.anomalies if self.kind == "anomaly" else config.drift) == "stop"


def list_findings(anomalies: anomalies_pb2.Anomalies, split: str) -> Iterator[Finding]:
    """Yield a finding for each reason of each anomaly, the dataset first, then by feature."""
    infos = sorted(anomalies.anomaly_info.items())
    if anomalies.HasField("dataset_anomaly_info"):
        infos = [("dataset", anomalies.dataset_anomaly_info), *infos]
    for feature, info in infos:
        for reason in info.reason or [_Info.Reason(description=info.description)]:
            drift = _Info.Type.Name(reason.type).startswith("COMPARATOR_")
            text = reason.description.strip().rstrip(".")
            yield Finding(split, feature, text, "drift" if drift else "anomaly")


def explain_stop(findings: Sequence[Finding]) -> str:
    """Say for which findings a run stops, and what to do."""
    kinds = {finding.kind for finding in findings}
    wrong = "do not fit their schema" if "anomaly" in kinds else "have changed"
    named = " | ".join(map(str, findings[:_NAMED]))
    more = len(findings) - _NAMED
    ways = []
    if "anomaly" in kinds:
        ways.append("Repair the images or their folders, or the schema if they are right")
    if "drift" in kinds:
        ways.append("If the change is wanted, run once with --validation.drift warn")
    return (
        f"The examples {wrong}: {named}{f' | and {more} more' if more > 0 else ''}. "
        f"{'. '.join(ways)}."
    )

"""Reads what ExampleValidator found."""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from tensorflow_metadata.proto.v0 import anomalies_pb2

from components.contract.properties import Described
from components.storage.artifact_files import open_file
from components.validation.config import ValidationConfig
from components.validation.finding import Finding, list_findings

# As TFX names it.
_FILE = "SchemaDiff.pb"


class Anomalies(NamedTuple):
    """Where they are, for those who have no artifact."""

    uri: str
    split_names: str


def read_findings(artifact: Described) -> list[Finding]:
    """Read what ExampleValidator wrote, sorted by split and feature."""
    return [finding for found in _read(artifact).values() for finding in found]


def _read(artifact: Described) -> dict[str, list[Finding]]:
    found = {}
    for split in sorted(json.loads(artifact.split_names)):
        with open_file(os.path.join(artifact.uri, f"Split-{split}", _FILE), "rb") as file:
            anomalies = anomalies_pb2.Anomalies.FromString(file.read())
        found[split] = list(list_findings(anomalies, split))
    return found


def read_anomalies(artifact: Described) -> dict[str, list[str]]:
    """Read all findings, drift among them: split → texts, which begin with the feature."""
    return {
        split: [f"{finding.feature}: {finding.text}" for finding in found]
        for split, found in _read(artifact).items()
    }


def describe_warnings(artifact: Described, config: ValidationConfig) -> list[str]:
    """Describe the findings with which a run goes on."""
    return [str(finding) for finding in read_findings(artifact) if not finding.stops(config)]

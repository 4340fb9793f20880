"""Reads what ExampleValidator found."""

from __future__ import annotations

import os

from tensorflow_metadata.proto.v0 import anomalies_pb2
from tfx import types
from tfx.components.example_validator.executor import DEFAULT_FILE_NAME
from tfx.types import artifact_utils
from tfx.utils import io_utils

from components.validation.config import ValidationConfig
from components.validation.finding import Finding, list_findings


def read_findings(artifact: types.Artifact) -> list[Finding]:
    """Read what ExampleValidator wrote, sorted by split and feature."""
    return [finding for found in _read(artifact).values() for finding in found]


def _read(artifact: types.Artifact) -> dict[str, list[Finding]]:
    found = {}
    for split in sorted(artifact_utils.decode_split_names(artifact.split_names)):
        path = os.path.join(artifact_utils.get_split_uri([artifact], split), DEFAULT_FILE_NAME)
        anomalies = anomalies_pb2.Anomalies.FromString(io_utils.read_bytes_file(path))
        found[split] = list(list_findings(anomalies, split))
    return found


def read_anomalies(artifact: types.Artifact) -> dict[str, list[str]]:
    """Read all findings, drift among them: split → texts, which begin with the feature."""
    return {
        split: [f"{finding.feature}: {finding.text}" for finding in found]
        for split, found in _read(artifact).items()
    }


def describe_warnings(artifact: types.Artifact, config: ValidationConfig) -> list[str]:
    """Describe the findings with which a run goes on."""
    return [str(finding) for finding in read_findings(artifact) if not finding.stops(config)]

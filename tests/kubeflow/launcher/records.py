"""ML Metadata as KFP's launcher fills it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

from tests.kubeflow.launcher.driver import Release
from tests.kubeflow.launcher.values import StepError, custom_property


@dataclass(frozen=True)
class Artifact:
    """An artifact as ML Metadata keeps it; `metadata` are its custom properties."""

    id: int
    type: str
    uri: str
    metadata: dict[str, Any]


@dataclass
class TaskRun:
    """What became of a task."""

    state: Literal["SUCCEEDED", "FAILED", "SKIPPED"]
    log: str = ""
    """What the step wrote, and after it what driver and launcher had to say."""

    seconds: float = 0.0
    executor_input: dict[str, Any] = field(default_factory=dict)
    """What {{$}} stood for, with every number as a float."""

    outputs: dict[str, Artifact] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """What became of a run, task by task; those of sub-DAGs are beside the others."""

    id: str
    root: str
    tasks: dict[str, TaskRun]
    sub_dags: dict[str, TaskRun] = field(default_factory=dict)

    @property
    def succeeded(self) -> bool:
        """Say whether every task did."""
        return all(task.state == "SUCCEEDED" for task in self.tasks.values())


@dataclass
class Metadata:
    """The artifacts of a cluster."""

    session_info: str
    artifacts: dict[int, Artifact] = field(default_factory=dict)

    def record(self, name: str, artifact: Mapping[str, Any]) -> Artifact:
        """Keep an artifact (metadata/client.go, RecordArtifact)."""
        try:
            given = artifact.get("metadata", {})
            properties = {key: custom_property(value) for key, value in given.items()}
        except StepError as error:
            message = f'unable to produce MLMD artifact for output "{name}": {error}'
            raise StepError(message) from error
        properties.setdefault("display_name", name)
        properties.setdefault("store_session_info", self.session_info)
        recorded = Artifact(
            id=len(self.artifacts) + 1,
            type=_type_title(artifact.get("type", {})),
            uri=artifact.get("uri", ""),
            metadata=properties,
        )
        self.artifacts[recorded.id] = recorded
        return recorded


def _type_title(schema: Mapping[str, Any]) -> str:
    """Find the name of an artifact's type (getArtifactSchema, SchemaToArtifactType)."""
    if "schemaTitle" in schema:
        return str(schema["schemaTitle"])
    if "instanceSchema" not in schema:
        raise StepError(f"failed to determine schema: {dict(schema)}")
    content = yaml.safe_load(schema["instanceSchema"])
    if not isinstance(content, dict) or not content.get("title"):
        raise StepError("No title specified")
    return str(content["title"])


def session_info(root: str, release: Release) -> str:
    """Describe the store as KFP's default configuration does (config/env.go, s3.go, gcs.go)."""
    provider = root.partition("://")[0]
    parameters = {"fromEnv": "true"}
    if provider == "minio":
        parameters = {
            "accessKeyKey": "accesskey",
            "disableSSL": "true",
            "endpoint": "seaweedfs.kubeflow:9000",
            "fromEnv": "false",
            "maxRetries": "5",
            "region": "minio",
            "secretKeyKey": "secretkey",
            "secretName": "mlpipeline-minio-artifact",
        }
        if release is Release.V2_5:
            parameters["endpoint"] = "minio-service.kubeflow:9000"
            del parameters["maxRetries"]
    return json.dumps({"Provider": provider, "Params": parameters}, separators=(",", ":"))

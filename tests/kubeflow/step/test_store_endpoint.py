"""The address of the object store in the configuration of Kubeflow Pipelines."""

import json
import os
from pathlib import Path

import pytest

from pipeline_def.kubeflow.kubernetes_api import KubernetesClient
from pipeline_def.kubeflow.step import store_endpoint
from pipeline_def.kubeflow.step.store_endpoint import choose_endpoint, endpoint_of, noted_endpoint
from pipeline_def.kubeflow.step_interface import STORE_KEYS
from tests.kubeflow.step.kubernetes_server import KubernetesServer

MINIO = """
minio:
  default:
    endpoint: store.storage:9000
    disableSSL: true
    credentials: {fromEnv: false, secretRef: {secretName: s, accessKeyKey: a, secretKeyKey: b}}
s3: {default: {endpoint: s3.amazonaws.com, region: eu-west-1}}
"""


ROOT = "minio://b/root?endpoint=one:9000&disableSSL=true"
S3 = {"providers": MINIO, "defaultPipelineRoot": "s3://b/root"}


@pytest.mark.parametrize(
    ("config", "endpoint"),
    [
        ({}, None),
        # As Kubeflow installs it.
        ({"defaultPipelineRoot": ""}, None),
        ({"providers": MINIO}, "http://store.storage:9000"),
        # Of the pipeline root, and in its query.
        (S3, "https://s3.amazonaws.com"),
        ({"defaultPipelineRoot": ROOT}, "http://one:9000"),
        # Not YAML, and no mapping.
        ({"providers": "minio: [broken"}, None),
        ({"providers": "minio"}, None),
    ],
)
def test_configured_endpoint(config: dict[str, str], endpoint: str | None) -> None:
    assert endpoint_of(config) == endpoint


@pytest.mark.parametrize(
    ("noted", "endpoint"),
    [
        ({"endpoint": "store.kubeflow:9000", "disableSSL": "true"}, "http://store.kubeflow:9000"),
        ({"endpoint": "s3.example.org", "disableSSL": "false"}, "https://s3.example.org"),
        ({"endpoint": "http://minio:9000"}, "http://minio:9000"),
        ({"fromEnv": "true"}, None),
        (None, None),
    ],
)
def test_noted_endpoint(noted: dict[str, str] | None, endpoint: str | None) -> None:
    note = json.dumps({"Provider": "minio", "Params": noted})
    artifact = {"uri": "minio://b/x", "metadata": {"store_session_info": note}}
    given = {"inputs": {"artifacts": {"examples": {"artifacts": [artifact]}}}}
    assert noted_endpoint(given) == endpoint


def test_the_keys_of_the_store_may_be_a_volume(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(store_endpoint, "STORE_KEYS_FOLDER", str(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://given")
    for name in STORE_KEYS.values():
        # It is removed again after the test.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    choose_endpoint({})
    assert STORE_KEYS["accesskey"] not in os.environ
    for key in STORE_KEYS:
        (tmp_path / key).write_text(f"the {key}")
    choose_endpoint({})
    assert {key: os.environ[name] for key, name in STORE_KEYS.items()} == {
        "accesskey": "the accesskey",
        "secretkey": "the secretkey",
    }


def test_steps_without_inputs_use_the_configured_store(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(data: str) -> str | None:
        choose_endpoint({"inputs": {"parameterValues": {"data": f"{data}://bucket/images"}}})
        return os.environ.pop("AWS_ENDPOINT_URL", None)

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://given")
    with KubernetesServer() as kubernetes:
        cluster = kubernetes.cluster()
        # This process in the place of a pod.
        monkeypatch.setattr(KubernetesClient, "of_pod", staticmethod(lambda: cluster))
        kubernetes.role.append({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]})
        kubernetes.config_maps["kfp-launcher"] = {"providers": MINIO}
        assert (chosen("minio"), chosen("gs"), kubernetes.requests) == ("http://given", None, [])
        assert chosen("minio") == "http://store.storage:9000"
        kubernetes.role.clear()
        assert chosen("minio") is None

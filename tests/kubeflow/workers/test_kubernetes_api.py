"""The client of the Kubernetes API as a pod uses it: over TLS, with its account, for a while."""

import socket
from pathlib import Path

import pytest
from kubernetes.client import Configuration
from kubernetes.config import incluster_config

from pipeline_def.kubeflow import kubernetes_api
from pipeline_def.kubeflow.kubernetes_api import KubernetesClient
from pipeline_def.service_errors import Unreachable
from tests.kubeflow.workers.kubernetes_server import NAMESPACE, TOKEN, KubernetesServer


def test_a_pod_finds_the_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with KubernetesServer() as api:
        api.role = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]
        api.config_maps["kfp-launcher"] = {"a": "b"}
        api.use_tls(tmp_path / "ca.crt")
        (tmp_path / "namespace").write_text(NAMESPACE)
        (tmp_path / "token").write_text(TOKEN)
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api.port))
        for name, file in (("TOKEN", "token"), ("CERT", "ca.crt")):
            monkeypatch.setattr(incluster_config, f"SERVICE_{name}_FILENAME", f"{tmp_path}/{file}")
        monkeypatch.setattr(kubernetes_api, "_NAMESPACE", tmp_path / "namespace")
        cluster = KubernetesClient.of_pod()
        assert cluster.config_map("kfp-launcher") == {"a": "b"}
        assert cluster.config_map("another") == {}
        (tmp_path / "ca.crt").write_bytes(Path(incluster_config.__file__).read_bytes())
        with pytest.raises(Unreachable, match="could not read the config map"):
            KubernetesClient.of_pod().config_map("kfp-launcher")


def test_a_silent_api_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_api, "_TIMEOUT_SECONDS", (0.1, 0.1))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Unreachable, match=r"could not read the Job a \(.*timed out"):
            KubernetesClient(Configuration(host=address), "kubeflow").job("a")

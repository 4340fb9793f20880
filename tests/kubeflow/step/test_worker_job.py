"""The manifests of several workers, the states of their Job, and the client of Kubernetes."""

import dataclasses
import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.client import ApiClient, Configuration
from kubernetes.config import incluster_config

from pipeline_def.kubeflow import kubernetes_api
from pipeline_def.kubeflow.kubernetes_api import KubernetesClient, Manifest
from pipeline_def.kubeflow.step.worker_job import condition, worker_job, worker_service
from pipeline_def.service_errors import Unreachable
from tests.kubeflow.conftest import GPU_STEP
from tests.kubeflow.step.kubernetes_server import NAMESPACE, TOKEN, KubernetesServer

FULL = dataclasses.replace(
    GPU_STEP,
    cpu=0.5,
    memory=32,
    image_pull_secrets=["login"],
    secrets={"wandb": {"key": "WANDB_API_KEY"}},
    env={"TF_GPU_THREAD_MODE": "gpu_private"},
)
OWNER = {
    "metadata": {"name": "images-x7k2p-1234", "namespace": "kubeflow", "uid": "f3c1"},
    "spec": {"serviceAccountName": "pipeline-runner"},
}


def through_kubernetes(manifest: Manifest, kind: str) -> Any:
    """Return a manifest as Kubernetes' own classes hold it: they lose fields of other names."""
    api = ApiClient()
    read = api.deserialize(SimpleNamespace(data=json.dumps(manifest)), kind)
    return api.sanitize_for_serialization(read)


def test_manifests() -> None:
    command = ("python", '{"a": "$(HOME) $$"}')
    job = worker_job("trainer-01", 2, FULL, command, OWNER)
    service = worker_service("trainer-01", OWNER)
    # The classes of kfp's releases are older than this field.
    assert job["spec"].pop("successPolicy") == {"rules": [{"succeededIndexes": "0"}]}
    for manifest, kind in ((job, "V1Job"), (service, "V1Service")):
        assert through_kubernetes(manifest, kind) == manifest
        assert manifest["metadata"]["ownerReferences"][0]["uid"] == OWNER["metadata"]["uid"]
    template = job["spec"]["template"]
    # Kueue queues the Job as a whole, and Istio's proxy would keep workers from each other.
    assert job["metadata"]["labels"] == FULL.labels
    assert template["metadata"]["labels"] == {"cost": "vision"}
    assert template["metadata"]["annotations"] == {"sidecar.istio.io/inject": "false", "note": "a"}
    # No worker restarts alone.
    assert (job["spec"]["parallelism"], job["spec"]["backoffLimit"]) == (2, 0)
    assert service["spec"]["selector"] == {"job-name": "trainer-01"}
    [worker] = template["spec"]["containers"]
    # Kubernetes would replace $(HOME).
    assert worker["command"] == ["python", '{"a": "$$(HOME) $$$$"}']
    amounts = {"cpu": "0.5", "memory": "32G"}
    limits = {**amounts, "nvidia.com/gpu": "2"}
    assert worker["resources"] == {"requests": amounts, "limits": limits}
    names = [item["name"] for item in worker["env"]]
    variables = ["TF_GPU_THREAD_MODE", "WANDB_API_KEY", "JOB_COMPLETION_INDEX", "TF_CONFIG"]
    assert names == variables, "Kubernetes replaces only what stands before"
    tf_config = json.loads(worker["env"][-1]["value"].replace("$(JOB_COMPLETION_INDEX)", "1"))
    assert tf_config["task"] == {"type": "worker", "index": 1}
    assert tf_config["cluster"]["worker"][1] == "trainer-01-1.trainer-01:2222"
    assert template["spec"]["subdomain"] == service["metadata"]["name"]
    assert [item["name"] for item in template["spec"]["volumes"]] == ["claim-0", "shm"]
    assert [item["mountPath"] for item in worker["volumeMounts"]] == ["/mnt/data", "/dev/shm"]
    kept = {"nodeSelector", "tolerations", "imagePullSecrets"}
    assert template["spec"].keys() >= kept


def conditions(*states: tuple[str, str]) -> dict[str, Any]:
    listed = [{"type": kind, "status": s, "message": f"It is {kind}."} for kind, s in states]
    return {"status": {"conditions": listed}}


@pytest.mark.parametrize(
    ("job", "state", "message"),
    [
        ({"status": {"active": 2}}, "Pending", ""),
        ({"status": {"active": 2, "ready": 1}}, "Running", ""),
        (conditions(("Suspended", "True")), "Suspended", "It is Suspended."),
        (conditions(("Suspended", "False"), ("Failed", "True")), "Failed", "It is Failed."),
        # Other workers may be stopped after the chief is done.
        (
            conditions(("SuccessCriteriaMet", "True"), ("Failed", "True")),
            "Succeeded",
            "It is SuccessCriteriaMet.",
        ),
    ],
)
def test_the_state_of_a_job(job: dict[str, Any], state: str, message: str) -> None:
    assert condition(job) == (state, message)


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

"""The Kubernetes API for KFP's driver and launcher, which want TLS.

With our settings they read only config maps and secrets (backend/src/v2 of 2.14.3).
"""

from collections.abc import Mapping
from pathlib import Path

from tests.kubeflow.workers.kubernetes_server import NAMESPACE, TOKEN, KubernetesServer

Objects = Mapping[str, Mapping[str, str]]


class KubernetesApi(KubernetesServer):
    """Serves objects of one namespace; `account` is the folder of the service account."""

    def __init__(self, folder: Path, config_maps: Objects, secrets: Objects) -> None:
        super().__init__()
        rule = {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["get"]}
        self.role = [rule]
        self.config_maps |= config_maps
        self.secrets |= secrets
        self.account = folder / "account"
        self.account.mkdir()
        (self.account / "namespace").write_text(NAMESPACE)
        (self.account / "token").write_text(TOKEN)
        self.use_tls(self.account / "ca.crt")

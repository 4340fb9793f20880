"""The Kubernetes API for KFP's driver and launcher, which want TLS.

With our settings they read only config maps and secrets (backend/src/v2 of 2.14.3).
"""

import ssl
import subprocess
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
        certificate, key = self.account / "ca.crt", folder / "key.pem"
        _make_certificate(certificate, key)
        (self.account / "namespace").write_text(NAMESPACE)
        (self.account / "token").write_text(TOKEN)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True)

    @property
    def port(self) -> int:
        return self._http.server_port


def _make_certificate(certificate: Path, key: Path) -> None:
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", "/CN=kubernetes", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-out", str(certificate), "-keyout", str(key)]
    subprocess.run([*command.split(), *files, *names], check=True, capture_output=True)

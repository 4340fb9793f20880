"""A stub of the Kubernetes API for KFP's driver and launcher.

With our settings they read only config maps and secrets (backend/src/v2 of 2.14.3).
"""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from tests.kubeflow.stub_server import StubServer

NAMESPACE = "kubeflow"
_TOKEN = "token-of-the-pod"
_ROOT = f"/api/v1/namespaces/{NAMESPACE}/"

Objects = Mapping[str, Mapping[str, str]]


class KubernetesApi(StubServer):
    """Serves objects of one namespace; `account` is the folder of the service account."""

    def __init__(self, folder: Path, config_maps: Objects, secrets: Objects) -> None:
        super().__init__(_Handler)
        self.account = folder / "account"
        self.requests: list[str] = []
        self._config_maps = config_maps
        self._secrets = secrets
        self.account.mkdir()
        _make_certificate(self.account / "ca.crt", folder / "key.pem")
        (self.account / "namespace").write_text(NAMESPACE)
        (self.account / "token").write_text(_TOKEN)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.account / "ca.crt", folder / "key.pem")
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True)

    @property
    def port(self) -> int:
        return self._http.server_port

    def respond(self, path: str, token: str | None) -> tuple[int, dict[str, Any]]:
        """Return the status and body of the response to a GET."""
        self.requests.append(path.removeprefix(_ROOT))
        kind, _, name = path.removeprefix(_ROOT).partition("/")
        if token != f"Bearer {_TOKEN}":
            return 401, _status(401, "Unauthorized", "Unauthorized")
        if kind == "configmaps" and name in self._config_maps:
            return 200, _object("ConfigMap", name, dict(self._config_maps[name]))
        if kind == "secrets" and name in self._secrets:
            values = self._secrets[name].items()
            encoded = {key: base64.b64encode(value.encode()).decode() for key, value in values}
            return 200, _object("Secret", name, encoded)
        return 404, _status(404, "NotFound", f'{kind} "{name}" not found')


def _make_certificate(certificate: Path, key: Path) -> None:
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", "/CN=kubernetes", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-out", str(certificate), "-keyout", str(key)]
    subprocess.run([*command.split(), *files, *names], check=True, capture_output=True)


def _object(kind: str, name: str, data: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": data}


def _status(code: int, reason: str, message: str) -> dict[str, Any]:
    kind = {"apiVersion": "v1", "kind": "Status", "status": "Failure"}
    return {**kind, "code": code, "reason": reason, "message": message}


class _Handler(BaseHTTPRequestHandler):
    stub: KubernetesApi
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16

    def do_GET(self) -> None:
        status, body = self.stub.respond(self.path, self.headers.get("Authorization"))
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass

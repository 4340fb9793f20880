"""An HTTP server that stands in for a service, in a thread of the test's process."""

import json
import ssl
import subprocess
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Request:
    """A request; names of headers are in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        """The body; None without one."""
        return json.loads(self.content) if self.content else None


@dataclass(frozen=True)
class Response:
    """A response whose body is JSON, or text of the given type."""

    body: Any
    status: int = 200
    kind: str = "text/html"
    location: str = ""


class StubServer:
    """Serves as long as the block lasts, on a free port."""

    def __init__(self) -> None:
        bound: Any = type("Bound", (_Handler,), {"stub": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), bound)
        self._http.daemon_threads = True

    @property
    def port(self) -> int:
        return self._http.server_port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def use_tls(self, certificate: Path) -> None:
        """Make a certificate for this machine, and serve HTTPS with it."""
        key = certificate.with_name("key.pem")
        command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
        names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
        files = ["-out", str(certificate), "-keyout", str(key)]
        subprocess.run([*command.split(), *files, *names], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True)

    def respond(self, request: Request) -> Response | None:
        """Answer a request; None drops the connection."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()


class _Handler(BaseHTTPRequestHandler):
    stub: StubServer
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # one packet for headers and body; two wait 40 ms for each other

    def do_GET(self) -> None:
        target = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(target.query).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        content = self.rfile.read(int(headers.get("content-length") or 0))
        response = self.stub.respond(Request(self.command, target.path, query, headers, content))
        if response is None:
            self.close_connection = True
            return
        plain = isinstance(response.body, str)
        data = (response.body if plain else json.dumps(response.body)).encode()
        self.send_response(response.status)
        self.send_header("Content-Type", response.kind if plain else "application/json")
        self.send_header("Content-Length", str(len(data)))
        if response.location:
            self.send_header("Location", response.location)
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass

"""The server under Google's names, because TensorFlow's `gs://` takes no other address.

TensorFlow reaches it through `https_proxy`. The proxy ends TLS in the event loop of the server: one
process, and no second connection that every byte has to pass.
"""

import asyncio
import re
import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Self

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from benchmarks.gcs_server.api import Call, Handler
from benchmarks.gcs_server.server import GcsServer

HOSTS = ("storage.googleapis.com", "www.googleapis.com", "oauth2.googleapis.com")
# TensorFlow reads objects by the XML API; it writes the / of a name as %2F.
XML_OBJECT = re.compile("/([^/]+)/([^/]+)")
# TensorFlow sends both headers; the content is chunked.
SECOND_LENGTH = re.compile(
    rb"\r\nTransfer-Encoding: identity(?=\r\n)"
    rb"|(\r\nTransfer-Encoding: chunked\r\n(?:[^\r]+\r\n)*?)Content-Length: \d+\r\n"
)


def make_certificate() -> tuple[bytes, bytes]:
    """Return a self-signed certificate for `HOSTS` and its private key, both as PEM."""
    # TensorFlow does a TLS handshake per request; this key signs 20 times as fast as RSA.
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOSTS[0])])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(h) for h in HOSTS]), False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form, secret = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return certificate.public_bytes(pem), key.private_bytes(pem, form, secret)


class TensorFlowHandler(web.RequestHandler):
    """A connection of TensorFlow, which opens one per request."""

    _begun = False

    def data_received(self, data: bytes) -> None:
        """Drop one of two conflicting length headers, which aiohttp refuses together."""
        if not self._begun:
            data = SECOND_LENGTH.sub(rb"\1", data, count=1)
        self._begun = True
        super().data_received(data)


class Tunnel(asyncio.Protocol):
    """A CONNECT request whose connection then speaks TLS with the web server."""

    def __init__(self, server: web.Server, context: ssl.SSLContext) -> None:
        """Answer with `server`, whatever host is requested."""
        self._server, self._context, self._head = server, context, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Collect the request's head."""
        self._head += data
        if self._head.endswith(b"\r\n\r\n"):
            # The client's next bytes belong to TLS, which is not set up yet.
            self._transport.pause_reading()
            self._transport.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            # Kept, because an event loop holds tasks by weak references.
            self._task = asyncio.create_task(self._start_tls())

    async def _start_tls(self) -> None:
        loop = asyncio.get_running_loop()
        handler = TensorFlowHandler(self._server, loop=loop)
        try:
            transport = await loop.start_tls(
                self._transport, handler, self._context, server_side=True
            )
        except OSError:  # Of TLS, too: a client that left or does not trust the certificate.
            self._transport.abort()
        else:
            assert transport
            handler.connection_made(transport)


class TlsGcsServer(GcsServer):
    """A `GcsServer` that TensorFlow can use, with the same delays, faults and counts."""

    proxy = ""

    def __enter__(self) -> Self:
        super().__enter__()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def __exit__(self, *error: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        super().__exit__(*error)

    def tensorflow_environment(self, folder: Path) -> dict[str, str]:
        """Return the variables with which TensorFlow uses this server as `gs://`.

        The certificate is written to `folder`. TensorFlow looks at these variables for each
        request, at all that begin with GCS_ only when it is imported.
        """
        file = folder / "certificate.pem"
        file.write_bytes(self._certificate)
        return {
            "https_proxy": self.proxy,
            # The caller's list may exclude Google's hosts from the proxy.
            "no_proxy": "127.0.0.1",
            "CURL_CA_BUNDLE": str(file),
            # With a token TensorFlow looks for none in files or on a metadata server.
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "x",
        }

    def python_environment(self, folder: Path) -> dict[str, str]:
        """Return the variables with which clients in Python find this server as Google's.

        The certificate and a key of a service account are written to `folder`.
        """
        tensorflow = self.tensorflow_environment(folder)
        key = folder / "key.json"
        self.write_key(key, token_uri=f"https://{HOSTS[2]}/token")
        return {
            **{name: tensorflow[name] for name in ("https_proxy", "no_proxy")},
            "SSL_CERT_FILE": tensorflow["CURL_CA_BUNDLE"],
            "REQUESTS_CA_BUNDLE": tensorflow["CURL_CA_BUNDLE"],
            "GOOGLE_APPLICATION_CREDENTIALS": str(key),
        }

    async def _listen(self) -> None:
        self._certificate, key = make_certificate()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        with NamedTemporaryFile() as file:
            file.write(self._certificate + key)
            file.flush()
            context.load_cert_chain(file.name)
        self._web = web.Server(self._answer, access_log=None)
        self._proxy = await self._loop.create_server(
            lambda: Tunnel(self._web, context), "127.0.0.1", backlog=1024
        )
        self.proxy = "http://{}:{}".format(*self._proxy.sockets[0].getsockname())

    async def _close(self) -> None:
        self._proxy.close()
        await self._web.shutdown(0.1)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        # curl waits a second for this before it sends a large body.
        if request.headers.get("Expect", "").lower() == "100-continue":
            assert request.transport
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        response = await super()._answer(request)
        if request.secure and "Location" in response.headers:
            path = response.headers["Location"].removeprefix(self.endpoint)
            response.headers["Location"] = f"https://{HOSTS[1]}{path}"
        return response

    def find(self, call: Call) -> tuple[str, Handler, list[str]]:
        """Find the handler, for the XML API, too."""
        match = XML_OBJECT.fullmatch(call.path) if call.method == "GET" else None
        path = "/download/storage/v1/b/{}/o/{}".format(*match.groups()) if match else call.path
        return super().find(replace(call, path=path))

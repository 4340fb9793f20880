"""The HTTP server, run by a thread, with latency, limited bandwidth and faults."""

import asyncio
import json
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Literal, Self

from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from benchmarks.gcs_server.api import Call, JsonApi, error_response

# Instead of a good response: an HTTP status; a connection that is reset or stalls after the request
# was carried out; a body shorter than its Content-Length; a wrong byte in an object, in or out.
Fault = int | Literal["reset", "stall", "short", "corrupt"]

# HTTP statuses that only requests for an object get.
OBJECT_STATUSES = (403, 404)
READS = ("media", "metadata")

CHUNK = 64 * 1024


class GcsServer(JsonApi):
    """A storage server on a local port, run by a thread within a `with` block."""

    def __init__(
        self,
        folders: Mapping[str, str | Path] | None = None,
        *,
        latency_ms: float = 0,
        stream_mbps: float = 0,
    ) -> None:
        """Set the server up.

        Args:
            folders: Local folders by the names of their buckets, which start with their files.
            latency_ms: How long every answer waits; requests wait at the same time.
            stream_mbps: The megabits per second of a download, 0 for as many as there are.
        """
        super().__init__(folders or {})
        self.latency_ms = latency_ms
        self.stream_mbps = stream_mbps
        self.stall_seconds = 60.0
        # Faults of the next downloads of an object, and of every k-th download.
        self.faults: dict[str, list[Fault]] = {}
        self.fault_every: dict[int, Fault] = {}
        # Fraction of all requests that get a fault.
        self.fault_rates: dict[Fault, float] = {}
        self.met: Counter[Fault] = Counter()
        self._dice = random.Random(0)

    def __enter__(self) -> Self:
        started: Future[None] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)))
        self._thread.start()
        started.result()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def write_key(self, file: Path, *, token_uri: str = "") -> None:
        """Write a throw-away service account key for clients that require credentials.

        Args:
            file: to write.
            token_uri: where clients fetch a token for it; "": from this server, over plain HTTP.
        """
        pem = rsa.generate_private_key(65537, 2048).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        key = {
            "type": "service_account",
            "project_id": "test",
            "client_email": "test@test.iam.gserviceaccount.com",
            "private_key": pem.decode(),
            "token_uri": token_uri or f"{self.endpoint}/token",
        }
        file.write_text(json.dumps(key))

    async def _serve(self, started: Future[None]) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = web.Server(self._answer, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
            self.endpoint = "http://{}:{}".format(*runner.addresses[0])
            started.set_result(None)
            await self._stop.wait()
        except Exception as error:
            started.set_exception(error)
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.content.read()
        await asyncio.sleep(self.latency_ms / 1000)
        call = Call.of(request.method, request.raw_path, request.headers, body)
        kind, handler, names = self.find(call)
        fault = (self._next_fault(names[1]) if kind == "media" else None) or self._throw_dice(kind)
        if isinstance(fault, int):
            return error_response(fault, "Asked for by the test")
        # The uploaded content gets a wrong byte.
        self.damages_next = (kind, fault) == ("upload", "corrupt")
        response = self.run(handler, call, names)
        if self.damages_next:
            fault = None
        if response.status < 300 and (fault or (kind == "media" and self.stream_mbps)):
            return await self._send(request, response, fault)
        return response

    def _throw_dice(self, kind: str) -> Fault | None:
        """Return a random fault for a kind of request, or None."""
        chance = self._dice.random()
        for fault, rate in self.fault_rates.items():
            chance -= rate
            if chance < 0:
                fits = kind in READS or fault not in OBJECT_STATUSES
                if fault == "corrupt":
                    fits = kind in ("media", "upload")
                self.met[fault] += fits
                return fault if fits else None
        return None

    def _next_fault(self, name: str) -> Fault | None:
        if self.faults.get(name):
            return self.faults[name].pop(0)
        count = self.counts["media"]
        return next((fault for k, fault in self.fault_every.items() if count % k == 0), None)

    async def _send(
        self, request: web.BaseRequest, response: web.Response, fault: Fault | None
    ) -> web.StreamResponse:
        """Send a download slowly or badly."""
        assert request.transport
        if fault == "reset":
            # With SO_LINGER and no time, closing a socket resets the connection.
            connection = request.transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            request.transport.abort()
            return response
        if fault == "stall":
            await asyncio.sleep(self.stall_seconds)
            request.transport.abort()
            return response
        data = bytearray(response.body if isinstance(response.body, bytes) else b"")
        stream = web.StreamResponse(status=response.status, headers=response.headers)
        stream.content_length = len(data)
        await stream.prepare(request)
        if fault == "corrupt" and data:
            data[len(data) // 2] ^= 1
        await self._pace(stream, data[: len(data) // 2] if fault == "short" else data)
        if fault == "short":
            request.transport.close()
        return stream

    async def _pace(self, stream: web.StreamResponse, data: bytearray) -> None:
        clock = asyncio.get_running_loop().time
        begin = clock()
        for start in range(0, len(data), CHUNK):
            chunk = data[start : start + CHUNK]
            if self.stream_mbps:
                due = begin + (start + len(chunk)) * 8 / (self.stream_mbps * 1e6)
                await asyncio.sleep(due - clock())
            await stream.write(chunk)

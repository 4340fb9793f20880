"""An HTTP proxy in a thread, which spoils a fraction of the responses."""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import aiohttp
from aiohttp import web

# An HTTP status; a connection that breaks or stalls after the request was executed; a truncated
# response.
Fault = int | Literal["reset", "stall", "short"]

_NOT_FORWARDED = ("Transfer-Encoding", "Content-Encoding", "Content-Length", "Connection")


class FaultyProxy:
    """Forwards requests, and counts the faults that it injects."""

    def __init__(self, target: str, rates: dict[Fault, float]) -> None:
        """Forward requests to `target`, and spoil the given fractions of the responses."""
        self.endpoint = ""
        self.met: Counter[Fault] = Counter()
        self._target, self._rates, self._dice = target, rates, random.Random(0)

    def start(self, ready: threading.Event) -> None:
        """Serve until `stop`, in the current thread."""
        asyncio.run(self._serve(ready))

    def stop(self) -> None:
        """Stop serving."""
        self._loop.call_soon_threadsafe(self._done.set)

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()
        runner = web.ServerRunner(web.Server(self._answer, access_log=None), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.endpoint = "http://{}:{}".format(*runner.addresses[0])
        async with aiohttp.ClientSession(auto_decompress=False) as self._session:
            ready.set()
            await self._done.wait()
        await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        fault = self._choose_fault()
        assert request.transport
        headers = dict(request.headers)
        if headers.pop("Expect", ""):
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await request.read()
        if isinstance(fault, int):
            return web.Response(status=fault)
        async with self._session.request(
            request.method, self._target + request.raw_path, headers=headers, data=body
        ) as found:
            content = await found.read()
        if fault in ("reset", "stall"):
            await asyncio.sleep(5 if fault == "stall" else 0)
            request.transport.abort()
            return web.Response()
        if fault == "short" and not content:
            self.met[fault] -= 1
        headers = {k: v for k, v in found.headers.items() if k not in _NOT_FORWARDED}
        answer = web.StreamResponse(status=found.status, headers=headers)
        # A response to HEAD has the length of the omitted body.
        answer.content_length = int(found.headers.get("Content-Length", len(content)))
        await answer.prepare(request)
        await answer.write(content[: len(content) // 2] if fault == "short" else content)
        if fault == "short":
            request.transport.close()
        return answer

    def _choose_fault(self) -> Fault | None:
        chance = self._dice.random()
        for fault, rate in self._rates.items():
            chance -= rate
            if chance < 0:
                self.met[fault] += 1
                return fault
        return None


@contextmanager
def spoil(target: str, rates: dict[Fault, float]) -> Iterator[FaultyProxy]:
    """Serve `target` at another address with faults."""
    proxy, ready = FaultyProxy(target, rates), threading.Event()
    thread = threading.Thread(target=proxy.start, args=(ready,))
    thread.start()
    ready.wait()
    try:
        yield proxy
    finally:
        proxy.stop()
        thread.join()

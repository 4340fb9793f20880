"""The life of an HTTP server that stands in for a service, in a thread of the test's process."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


class StubServer:
    """Serves as long as the block lasts, on a free port; handlers find it as their `stub`."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        bound: Any = type("Bound", (handler,), {"stub": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), bound)
        self._http.daemon_threads = True

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.shutdown()
        self._http.server_close()

"""HTTP as uvicorn speaks it, with a time limit for the headers of a request."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from pipeline_def.local.server.errors import to_json

HEADER_SECONDS = 10.0
"""From the opening of a connection to the last header of its first request."""


class TimedProtocol(H11Protocol):
    """Closes a connection whose first request does not begin; uvicorn would wait for ever.

    Between requests uvicorn closes it after `timeout_keep_alive`, but not once a byte has come.
    """

    _timer: asyncio.TimerHandle | None = None
    header_seconds = HEADER_SECONDS

    def connection_made(self, transport: Any) -> None:
        """Start the time."""
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Stop the time when all headers are there; start it when others begin."""
        super().data_received(data)
        if self._is_answering:
            self._stop_timer()
        elif self._timer is None:
            self._start_timer()

    def on_response_complete(self) -> None:
        """Let uvicorn take care of the connection until something comes."""
        self._stop_timer()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time."""
        self._stop_timer()
        super().connection_lost(exc)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self.header_seconds, self._give_up)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self._is_answering or self.transport.is_closing():
            return
        body = to_json(f"The headers were not here within {self.header_seconds:g} s.")
        self.transport.write(
            b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\n"
            b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )
        self.transport.close()

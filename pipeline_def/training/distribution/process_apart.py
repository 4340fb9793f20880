"""A fresh process for work that this one cannot do; JSON lines go to it and come back.

It ends when the process that asked for it ends, however that does.
"""

import importlib
import json
import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from components.contract import errors
from components.contract.errors import UserError
from pipeline_def.startup import end_process, quick_imports

Receive = Callable[[], Any]
Send = Callable[[Any], None]


class ProcessApart:
    """The process, as seen by the one that has started it."""

    def __init__(self, module: str, function: str) -> None:
        """Start to call a function of a module, which gets `Receive` and `Send`."""
        reader, writer = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, module, function, str(writer)],
            stdin=subprocess.PIPE,
            pass_fds=[writer],
            # Ctrl-C is for the process that asked.
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        os.close(writer)
        self._lines = os.fdopen(reader, encoding="utf-8")

    def fileno(self) -> int:
        """Return the file descriptor of what comes back, for a selector."""
        return self._lines.fileno()

    def send(self, message: Any) -> None:
        """Send a JSON value; it is lost if the process has ended."""
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # `receive` says so.

    def receive(self) -> Any:
        """Wait for a JSON value; return None if the process has ended.

        Raises:
            UserError: the function has raised it.
        """
        if not (line := self._lines.readline()):
            return None
        return raise_sent(json.loads(line))

    def wait(self) -> int:
        """Wait for the end of the process, and return its status."""
        return self._process.wait()

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._lines.close()


def describe_error(error: UserError) -> dict[str, str]:
    """Return a user's mistake as another process gets it."""
    return {"error": type(error).__name__, "text": str(error)}


def raise_sent(message: Any) -> Any:
    """Return what another process has sent, unless it is the `UserError` that ended it."""
    if "error" in message:
        raise getattr(errors, message["error"], UserError)(message["text"])
    return message


def _main(module: str, function: str, writer: str) -> NoReturn:
    """Call a function; write what it sends and a user's mistake to the pipe."""
    orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(orders,), daemon=True).start()
    pipe = os.fdopen(int(writer), "w", encoding="utf-8", buffering=1)

    def send(message: Any) -> None:
        pipe.write(json.dumps(message) + "\n")

    # Imports would set it up otherwise.
    logging.basicConfig(level=logging.INFO)
    try:
        with quick_imports():
            called = getattr(importlib.import_module(module), function)
        called(orders.get, send)
    except UserError as error:
        send(describe_error(error))
        end_process(error.exit_status)
    end_process(0)


def _read(orders: "queue.SimpleQueue[Any]") -> None:
    """Read standard input, which closes when the process that asked ends."""
    for line in sys.stdin.buffer:
        orders.put(json.loads(line))
    os._exit(1)


if __name__ == "__main__":
    _main(*sys.argv[1:])

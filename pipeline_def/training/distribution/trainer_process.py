"""A training in a fresh process, as TensorFlow has been used in the one that asks for it."""

import importlib
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, NoReturn

from components.contract import errors
from components.contract.errors import UserError
from components.contract.progress import LOGGER
from pipeline_def.startup import end_process, quick_imports

# What `components.contract.progress` adds to its records.
_EXTRA = ("progress", "lasting")


def train_apart(arguments: Mapping[str, Any]) -> None:
    """Call `run_fn` with these fields in a fresh process; report its progress as this one's."""
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(writer)],
        # Closes when the run ends, however it ends, and ends the process.
        stdin=subprocess.PIPE,
        pass_fds=[writer],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    os.close(writer)
    assert process.stdin
    process.stdin.write(json.dumps(arguments).encode() + b"\n")
    process.stdin.flush()
    with os.fdopen(reader, encoding="utf-8") as lines:
        for message in map(json.loads, lines):
            if "error" in message:
                kind = getattr(errors, message["error"], UserError)
                raise kind(message["text"])
            LOGGER.info(message.pop("text"), extra=message)
    if status := process.wait():
        raise RuntimeError(f"The process that trains ended with status {status}.")


def train_here(arguments: Mapping[str, Any]) -> None:
    """Call `run_fn` with these fields, and log to standard error."""
    logging.basicConfig(level=logging.INFO)
    with quick_imports():
        # By name, as TFX finds it: that module imports this one.
        module = importlib.import_module("pipeline_def.training.run_fn")
    module.run_fn(SimpleNamespace(**arguments))


def _end_with_run() -> None:
    os.read(0, 1)
    os._exit(1)


def _main(writer: int) -> NoReturn:
    """Train as standard input says; write progress and a user's mistake to the pipe."""
    # Unbuffered: the thread below reads on.
    with open(0, "rb", buffering=0, closefd=False) as given:
        arguments = json.loads(given.readline())
    threading.Thread(target=_end_with_run, daemon=True).start()
    pipe = os.fdopen(writer, "w", encoding="utf-8", buffering=1)

    class Forwarder(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            extra = {key: vars(record)[key] for key in _EXTRA if key in vars(record)}
            pipe.write(json.dumps({"text": record.getMessage(), **extra}) + "\n")

    LOGGER.addHandler(Forwarder())
    try:
        train_here(arguments)
    except UserError as error:
        pipe.write(json.dumps({"error": type(error).__name__, "text": str(error)}) + "\n")
        end_process(error.exit_status)
    end_process(0)


if __name__ == "__main__":
    _main(int(sys.argv[1]))

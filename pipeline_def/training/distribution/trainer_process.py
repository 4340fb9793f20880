"""A training in a fresh process, as TensorFlow has been used in the one that asks for it."""

import importlib
import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from components.host.progress import LOGGER
from pipeline_def.startup import quick_imports
from pipeline_def.training.distribution.process_apart import ProcessApart, Receive, Send

# What `components.host.progress` adds to its records.
_EXTRA = ("progress", "lasting")


def train_apart(arguments: Mapping[str, Any]) -> None:
    """Call `run_fn` with these fields in a fresh process; report its progress as this one's."""
    process = ProcessApart(__name__, "answer")
    process.send(arguments)
    while message := process.receive():
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


def answer(receive: Receive, send: Send) -> None:
    """Train in the process that `train_apart` has started."""

    class Forwarder(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            extra = {key: vars(record)[key] for key in _EXTRA if key in vars(record)}
            send({"text": record.getMessage(), **extra})

    LOGGER.addHandler(Forwarder())
    train_here(receive())

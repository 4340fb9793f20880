"""Runs the Trainer in a process of its own, as a container would.

`python -m tests.trainer.loop.trainer_process JSON`, with what TFX passes to `run_fn`; TF_CONFIG and
the like are read from the environment.
"""

import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from components.contract.errors import UserError
from components.host.startup import end_process, quick_imports


def start(
    arguments: Mapping[str, Any], *, log: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a Trainer with what TFX passes to `run_fn`; its errors go to `log`."""
    module = "tests.trainer.loop.trainer_process"
    with open(log, "wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", module, json.dumps(arguments)],
            env={**os.environ, **environment},
            stderr=errors,
        )


def cluster(size: int) -> list[dict[str, str]]:
    """Return the environment of each of `size` workers on this machine."""
    addresses = [f"localhost:{_free_port()}" for _ in range(size)]
    return [
        {
            "TF_CONFIG": json.dumps(
                {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            )
        }
        for index in range(size)
    ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    try:
        with quick_imports():
            from components.trainer.run_fn import run_fn
        run_fn(SimpleNamespace(**json.loads(sys.argv[1])))
    except UserError as error:
        print(f"Trainer: error: {error}", file=sys.stderr, flush=True)
        end_process(error.exit_status)
    end_process(0)

"""Keeps the log of a step in the object store, as a pod's log goes with its pod.

KFP's launcher stores only the logs of steps that succeed. So the step runs in a child process, and
its parent copies what it writes, however it ends.
"""

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from components.contract.errors import UserError
from components.storage.folder import is_file, read_bytes, replace_file
from pipeline_def.kubeflow.executor_input import run_folder
from pipeline_def.kubeflow.step.store_endpoint import choose_endpoint
from pipeline_def.kubeflow.step_interface import kept_log

MOST = 1 << 20
"""Bytes of a log that are kept at least; twice as many at most."""
INTERVAL, _PATIENCE = 30.0, 20.0
"""Seconds between two writes, and for the last one."""
_SECRET = re.compile(r"KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL", re.IGNORECASE)
_SHORTEST_SECRET = 8


@dataclass
class BoundedLog:
    """The last MiB of a log."""

    data: bytearray = field(default_factory=bytearray)
    cut: bool = False

    def add(self, data: bytes) -> None:
        """Append bytes, and drop the oldest."""
        self.data += data
        if len(self.data) > 2 * MOST:
            del self.data[:-MOST]
            self.cut = True

    def content(self, environment: Mapping[str, str]) -> bytes:
        """Return the log without the secrets of the environment."""
        log = bytes(self.data)
        if self.cut:
            # Whole lines: half a secret would not be found.
            log = b"... the beginning is left out ...\n" + log.partition(b"\n")[2]
        for name, value in environment.items():
            if _SECRET.search(name) and len(value) >= _SHORTEST_SECRET:
                log = log.replace(value.encode(), b"***")
        return log


def run_keeping_log(
    run: Callable[[], int], task: str, pipeline: str, executor_input: Mapping[str, Any]
) -> int:
    """Run a step and keep its log beside the artifacts of its run; return its exit status.

    Retries add to the log. A store that fails or hangs costs the log, never the step.
    """
    folder = run_folder(executor_input, pipeline)
    # A worker's log is relayed by the step that started it.
    if folder is None or "TF_CONFIG" in os.environ:
        return run()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        os.close(writing)
        return run()
    os.close(writing)
    log, ended = BoundedLog(), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda given, _: os.kill(child, given))
    reader = threading.Thread(target=_copy, args=(reading, log), daemon=True)
    url = kept_log(folder, task)
    keeper = threading.Thread(target=_keep, args=(url, log, ended, executor_input), daemon=True)
    reader.start()
    keeper.start()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    # Processes that the step left behind may hold the pipe open.
    reader.join(1.0)
    if status < 0:
        line = f"{task}: failed: {_explain(signal.Signals(-status))}\n".encode()
        log.add(line)
        os.write(2, line)
    ended.set()
    keeper.join(_PATIENCE)
    sys.stdout.flush()
    return status if status >= 0 else 128 - status


def _explain(number: signal.Signals) -> str:
    memory = "; it may need more memory" if number == signal.SIGKILL else ""
    return f"The step was ended by {number.name}{memory}."


def _copy(pipe: int, log: BoundedLog) -> None:
    """Copy a pipe to the pod's log and to `log`."""
    while data := os.read(pipe, 1 << 16):
        log.add(data)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(1, rest) :]


def _keep(
    url: str, log: BoundedLog, ended: threading.Event, executor_input: Mapping[str, Any]
) -> None:
    """Write the log to `url` every 30 s and at the end."""
    try:
        choose_endpoint(executor_input)
        earlier = read_bytes(url) if is_file(url) else b""
        earlier += b"--- next attempt ---\n" if earlier else b""
        kept, last = b"", False
        while not last:
            last = ended.wait(INTERVAL)
            if (content := earlier + log.content(os.environ)) != kept:
                replace_file(url, content)
                kept = content
    except (UserError, OSError) as error:
        os.write(2, f"WARNING The log is not kept: {error}\n".encode())

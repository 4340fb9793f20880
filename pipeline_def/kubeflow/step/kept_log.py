"""Runs a step in a child process: keeps its log in the object store, and starts it again.

KFP's launcher stores only the logs of steps that succeed, and a pod's log goes with its pod. And
where Argo's defaults say `retryPolicy: OnError`, as in KFP 2.17, a step that fails is never
retried, whatever its `retries`.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from components.contract.errors import UserError
from components.storage.folder import is_file, read_bytes, replace_file
from pipeline_def.kubeflow.step.executor_io import artifacts_of, local_path, run_folder
from pipeline_def.kubeflow.step.store_endpoint import choose_endpoint
from pipeline_def.kubeflow.step_interface import COMMAND, MISTAKE, PodSettings, kept_log

MOST = 1 << 20
"""Bytes of a log that are kept at least; twice as many at most."""
INTERVAL, _PATIENCE = 30.0, 20.0
"""Seconds between two writes, and for the last one."""
_SECRET = re.compile(r"KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL", re.IGNORECASE)
_SHORTEST_SECRET = 8
_NEXT = b"--- next attempt ---\n"
PAUSE = 30.0
"""Seconds before the first retry, doubled before each further one, as of Argo's retries."""
_CHILD = "STEP_IS_CHILD"
"""Environment variable of the process that runs the step."""


@dataclass
class BoundedLog:
    """The last MiB of a log."""

    data: bytearray = field(default_factory=bytearray)
    cut: bool = False
    attempts: int = 0
    """Attempts before this pod, whose logs are in the store."""
    secrets: Collection[str] = ()
    """Variables that hold secrets, whatever their names."""

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
            # A secret made of a file often ends in a newline, which is not printed with it.
            value = value.strip()
            is_secret = name in self.secrets or _SECRET.search(name)
            if is_secret and len(value) >= _SHORTEST_SECRET:
                log = log.replace(value.encode(), b"***")
        return log


def run_keeping_log(
    run: Callable[[], int],
    task: str,
    pipeline: str,
    executor_input: Mapping[str, Any],
    settings: PodSettings,
) -> int:
    """Run a step and keep its log beside the artifacts of its run; return its exit status.

    A step that fails, but not by a mistake that stays, is started again, as often as the settings
    say, in all pods together. Retries add to the log. A store that fails or hangs costs the log,
    never the step.
    """
    folder = run_folder(executor_input, pipeline)
    # A worker's log is relayed by the step that started it.
    if folder is None or "TF_CONFIG" in os.environ or _CHILD in os.environ:
        return run()
    log, ended = BoundedLog(secrets=settings.secrets), threading.Event()
    url = kept_log(folder, task)
    keeper = threading.Thread(target=_keep, args=(url, log, ended, executor_input), daemon=True)
    keeper.start()
    step, retries = _Step(log), settings.retries
    status, tried = step.run(), 1
    while status not in (0, MISTAKE) and tried + log.attempts <= retries and not step.stopped:
        pause = PAUSE * 2 ** (tried - 1)
        _say(log, _explain(task, status), f"{task}: it is started again in {pause:g} s.")
        log.add(_NEXT)
        if step.sleep(pause):
            _remove_outputs(executor_input)
            status, tried = step.run(), tried + 1
    _say(log, _explain(task, status))
    ended.set()
    keeper.join(_PATIENCE)
    sys.stdout.flush()
    return status if status >= 0 else 128 - status


class _Step:
    """The process that runs the step, and the thread that copies what it writes."""

    stopped = False
    """Whether Kubernetes, or somebody, ends the pod."""

    def __init__(self, log: BoundedLog) -> None:
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def run(self) -> int:
        """Return the exit status of the process; negative: the number of a signal."""
        command = [sys.executable, "-m", COMMAND[-1], *sys.argv[1:]]
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, _CHILD: "1"},
        )
        assert self._process.stdout
        pipe = self._process.stdout.fileno()
        reader = threading.Thread(target=_copy, args=(pipe, self._log), daemon=True)
        reader.start()
        if self.stopped:
            self._process.terminate()
        status = self._process.wait()
        # Processes that the step left behind may hold the pipe open.
        reader.join(1.0)
        return status

    def sleep(self, seconds: float) -> bool:
        """Wait; return whether the pod still runs."""
        deadline = time.monotonic() + seconds
        # A signal does not end a sleep.
        while not self.stopped and time.monotonic() < deadline:
            time.sleep(min(1.0, seconds))
        return not self.stopped

    def _stop(self, number: int, _: object) -> None:
        self.stopped = True
        if self._process:
            self._process.send_signal(number)


def _remove_outputs(executor_input: Mapping[str, Any]) -> None:
    """Remove what an attempt has left where the launcher takes outputs from."""
    for artifact in artifacts_of({"outputs": executor_input["outputs"]}):
        if (path := local_path(artifact["uri"])) != artifact["uri"]:
            shutil.rmtree(path, ignore_errors=True)


def _say(log: BoundedLog, *lines: str) -> None:
    for line in filter(None, lines):
        log.add(f"{line}\n".encode())
        os.write(2, f"{line}\n".encode())


def _explain(task: str, status: int) -> str:
    """Return the last line of a step that a signal has ended; others say theirs themselves."""
    if status >= 0:
        return ""
    number = signal.Signals(-status)
    memory = "; it may need more memory" if number == signal.SIGKILL else ""
    return f"{task}: failed: The step was ended by {number.name}{memory}."


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
        earlier += _NEXT if earlier else b""
        log.attempts = earlier.count(_NEXT)
        kept, last = b"", False
        while not last:
            last = ended.wait(INTERVAL)
            if (content := earlier + log.content(os.environ)) != kept:
                replace_file(url, content)
                kept = content
    except (UserError, OSError) as error:
        os.write(2, f"WARNING The log is not kept: {error}\n".encode())

"""Hands the training of a local run to the workers of TF_CONFIG, through files in its output.

Workers wait until all steps before the Trainer are done, and then call its `run_fn` with the fields
that the chief writes. TensorFlow connects processes only before it computes anything, but earlier
steps of the chief have used it, so the chief trains in a fresh process, too.
"""

import contextlib
import json
import logging
import multiprocessing
import os
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from components.contract.errors import ConfigurationError, UserError, WorkerError
from components.host.lock import LOCK_FILE, is_locked
from components.host.progress import LOGGER, report_progress
from components.host.startup import end_process, quick_imports
from components.storage.folder import replace_file
from components.trainer.loop.cluster import Cluster

SECONDS = 600.0
"""How long processes wait for each other to start."""

_PAUSE = 1.0
_ANSWER = "answer"
# What `run_fn` reads of TFX's FnArgs.
_FIELDS = (
    *("train_files", "eval_files", "transform_graph_path", "hyperparameters"),
    *("serving_model_dir", "model_run_dir", "custom_config"),
)
_open: list["Handover"] = []


class Handover:
    """The chief's side: waits for all workers, and starts the training on each.

    Each worker writes a file with its TF_CONFIG and an id. The answer lists the ids that it is
    meant for, so that nobody takes the one of an earlier run.
    """

    def __init__(self, cluster: Cluster, output: str, *, seconds: float = SECONDS) -> None:
        """Hand over in the folder `output`, which all workers share.

        Raises:
            ConfigurationError: it is in a bucket.
        """
        if "://" in output:
            raise ConfigurationError(
                f"TF_CONFIG lists {cluster.size} processes, but output is {output}: training on "
                f"several machines needs an --output on a disk that they share."
            )
        self._cluster, self._seconds = cluster, seconds
        self._folder = Path(output, ".workers")

    def train(self, fn_args: Any) -> None:
        """Call the Trainer's `run_fn` on all processes.

        Raises:
            WorkerError: some workers are missing.
            UserError: a worker has another TF_CONFIG, or training failed.
        """
        arguments = {name: getattr(fn_args, name) for name in _FIELDS}
        self._gather()
        self._answer({"arguments": arguments})
        train_apart(arguments)

    def _gather(self) -> None:
        """Wait until all workers have written their files."""
        others = self._cluster.others
        # Those that still wait write them again.
        for name in others:
            self._file(name).unlink(missing_ok=True)
        ends = time.monotonic() + self._seconds
        while missing := [name for name in others if not self._read(name)]:
            if time.monotonic() > ends:
                raise WorkerError(
                    f"Of the processes in TF_CONFIG, {', '.join(missing)} did not start within "
                    f"{self._seconds:.0f} s: start local_runner.py on each machine with the same "
                    "options, and with an --output on a disk that they share."
                )
            done = len(others) - len(missing)
            report_progress(done=done, total=len(others), unit="other workers")
            time.sleep(min(_PAUSE, self._seconds / 10))
        for name in others:
            if self._read(name)["cluster"] != self._cluster.addresses:
                raise ConfigurationError(
                    f"{name} and the chief have different lists of processes in TF_CONFIG."
                )

    def _answer(self, content: Mapping[str, Any]) -> None:
        waiting = [self._read(name).get("id") for name in self._cluster.others]
        _write(self._file(_ANSWER), {"workers": waiting, **content})

    def close(self, error: BaseException | None = None) -> None:
        """Tell workers that still wait how the run has ended; remove the files if none does."""
        # A worker that has taken its answer has removed its file.
        if any(self._read(name) for name in self._cluster.others):
            self._answer({"error": str(error)} if isinstance(error, UserError) else {})
        else:
            shutil.rmtree(self._folder, ignore_errors=True)

    def fetch(self) -> dict[str, Any] | None:
        """Wait for the chief, as a worker.

        Returns:
            What the chief's Trainer was given; None if the run has ended without training.

        Raises:
            WorkerError: there is no chief, or its run has failed.
        """
        mine, ends = uuid.uuid4().hex, time.monotonic() + self._seconds
        file = self._file(self._cluster.name)
        try:
            while mine not in (answer := self._read(_ANSWER)).get("workers", ()):
                if self._read(self._cluster.name).get("id") != mine:
                    _write(file, {"id": mine, "cluster": self._cluster.addresses})
                if is_locked(str(self._folder.parent / LOCK_FILE)):
                    ends = time.monotonic() + self._seconds
                if time.monotonic() > ends:
                    raise WorkerError(
                        f"No run has used {self._folder.parent} for {self._seconds:.0f} s: start "
                        "the chief with the same options, unless it has finished."
                    )
                time.sleep(min(_PAUSE, self._seconds / 10))
        finally:
            file.unlink(missing_ok=True)
        if "error" in answer:
            raise WorkerError(f"The chief has stopped: {answer['error']}")
        return answer.get("arguments")

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _read(self, name: str) -> dict[str, Any]:
        """Return the content of a file, {} if it does not exist."""
        try:
            content: dict[str, Any] = json.loads(self._file(name).read_bytes())
        except FileNotFoundError:
            return {}
        return content


def _write(file: Path, content: Mapping[str, Any]) -> None:
    replace_file(str(file), json.dumps(content).encode())


def current() -> Handover | None:
    """Return the handover of this process, if it is the chief of a run."""
    return _open[-1] if _open else None


@contextlib.contextmanager
def handing_over(cluster: Cluster | None, output: str) -> Iterator[None]:
    """Let the Trainer of a run within the context train on a cluster, if there is one."""
    if cluster is None:
        yield
        return
    handover, failure = Handover(cluster, output), None
    _open.append(handover)
    try:
        yield
    except BaseException as error:
        failure = error
        raise
    finally:
        _open.pop()
        handover.close(failure)


def take_part(cluster: Cluster, output: str) -> None:
    """Train with the chief, as a worker.

    Raises:
        UserError: there is no chief, its run has failed, or training failed.
    """
    handover = Handover(cluster, output)
    print(f"This is {cluster.name} of TF_CONFIG. Waiting for the chief in {output} …", flush=True)
    arguments = handover.fetch()
    if arguments is None:
        print("The chief has ended without training, as its output says.")
        return
    print("Training …", flush=True)
    _train(arguments)
    print("Done; the chief has the results.")


def train_apart(arguments: Mapping[str, Any]) -> None:
    """Call `run_fn` with these fields in a fresh process; report its progress as this one's.

    Raises:
        UserError: `run_fn` has raised it.
    """
    spawn = multiprocessing.get_context("spawn")
    receiver, sender = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_train_and_report, args=(arguments, sender))
    process.start()
    sender.close()
    try:
        with contextlib.suppress(EOFError):
            while True:
                message = receiver.recv()
                if isinstance(message, UserError):
                    raise message
                LOGGER.handle(message)
        process.join()
    finally:
        process.kill()
    if process.exitcode:
        raise RuntimeError(f"The process that trains ended with status {process.exitcode}.")


def _train_and_report(arguments: Mapping[str, Any], sender: Connection) -> None:
    """Train in the process that `train_apart` has started; send log records of progress."""
    # Ctrl-C is for the process that has started this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    reporter = logging.Handler()
    reporter.emit = lambda record: sender.send(record)  # type: ignore[method-assign]
    LOGGER.addHandler(reporter)
    try:
        _train(arguments)
    except UserError as error:
        sender.send(error)
        end_process(error.exit_status)
    end_process(0)


def _end_with_parent() -> None:
    """End this process when its parent ends, however that does."""
    parent = multiprocessing.parent_process()
    assert parent
    parent.join()
    os._exit(1)


def _train(arguments: Mapping[str, Any]) -> None:
    """Call `run_fn` with these fields, and log to standard error."""
    # Imports would set it up otherwise.
    logging.basicConfig(level=logging.INFO)
    with quick_imports():
        # TensorFlow, while workers wait without it.
        from components.trainer.run_fn import run_fn
    run_fn(SimpleNamespace(**arguments))

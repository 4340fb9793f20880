"""Write the record of a run while it runs."""

import contextlib
import dataclasses
import platform
import socket
import time
from collections.abc import Iterator
from importlib import metadata
from typing import Any, Literal

from components.contract.errors import StorageError
from components.host.stopping import before_stopping
from pipeline_def.runs.history import find_producers
from pipeline_def.runs.record import (
    RunRecord,
    Step,
    end,
    now,
    read_records,
    write_record,
)

_LIBRARIES = (
    "tfx",
    "tensorflow",
    "tf-keras",
    "tensorflow-transform",
    "tensorflow-data-validation",
    "tensorflow-model-analysis",
    "apache-beam",
    "numpy",
)


class Recorder:
    """Holds the record of one run and writes it after every change."""

    def __init__(
        self,
        output: str,
        *,
        pipeline: str,
        configuration: dict[str, Any],
        code: dict[str, str],
    ) -> None:
        """Start the record of a run in the folder `output`.

        Raises:
            StorageError: the record cannot be written.
        """
        self.output = output
        earlier: list[RunRecord] = []
        # Unreadable records, for instance of a later version, must not prevent a run.
        with contextlib.suppress(StorageError):
            earlier = read_records(output)
        self._producers = find_producers(earlier)
        self.record = RunRecord(
            id=_new_id(),
            pipeline=pipeline,
            started=now(),
            configuration=configuration,
            code=code,
            versions={
                "python": platform.python_version(),
                **{name: metadata.version(name) for name in _LIBRARIES},
            },
            host=socket.gethostname(),
        )
        write_record(self.record, output)

    def change(self, **fields: Any) -> None:
        """Replace fields of the record."""
        self.record = dataclasses.replace(self.record, **fields)
        write_record(self.record, self.output)

    def step_started(self, name: str) -> None:
        """Record that a step started."""
        self.change(steps={**self.record.steps, name: Step("running", started=now())})

    def step_ended(self, name: str, step: Step, **facts: Any) -> None:
        """Record how a step ended, with record fields derived from its outputs."""
        if step.state == "cached":
            known = (o.uri for o in step.outputs.values() if o.uri in self._producers)
            made_by = next((self._producers[uri][0].id for uri in known), "")
            step = dataclasses.replace(step, made_by=made_by)
        self.change(steps={**self.record.steps, name: step}, **facts)

    def end(self, state: Literal["done", "failed", "stopped"], error: str = "") -> None:
        """Record how the run ended. A step that was running ends in the same state."""
        self.record = end(self.record, state)
        self.change(error=error, ended=now())

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record an exception that leaves the context, or that the process is stopped in it."""
        try:
            with before_stopping(lambda: self.end("stopped")):
                yield
        except KeyboardInterrupt:
            self.end("stopped")
            raise
        except Exception as error:
            self.end("failed", describe_failure(error))
            raise


def describe_failure(error: Exception) -> str:
    """Return the first line of an exception's message, or the name of its class."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _new_id() -> str:
    nanoseconds = time.time_ns()
    start = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(nanoseconds // 10**9))
    return f"{start}.{nanoseconds % 10**9:09d}"

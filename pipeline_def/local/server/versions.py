"""The version that is served: the newest whole one, loaded while the one before answers.

One in a store is brought to this machine first.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from components.contract.errors import ModelError, StorageError
from components.storage.artifact_files import on_disk
from components.storage.mirror import Mirror
from components.storage.saved_model import whole_versions
from pipeline_def.local.server.model import Model

_LOGGER = logging.getLogger(__name__)
_Done = TypeVar("_Done")

Load = Callable[[str], Model]
"""From the folder of a version, on this machine, to a model that has answered once."""


@dataclass(frozen=True)
class VersionState:
    """What became of a version, as TensorFlow Serving's status has it."""

    version: str
    state: str
    error: str = ""

    def describe(self) -> dict[str, object]:
        """Return an entry of `model_version_status`."""
        code = "UNKNOWN" if self.error else "OK"
        status = {"error_code": code, "error_message": self.error}
        return {"version": self.version, "state": self.state, "status": status}


def find_newest(folder: str, version: str | None = None) -> str | None:
    """Return the newest whole version in a folder, or `version`; None if there is none.

    Raises:
        StorageError: the folder, a path or URL, cannot be listed.
    """
    for path in whole_versions(folder):
        if version in (None, os.path.basename(path)):
            return path
    return None


def load_copy(url: str, load: Load) -> Model:
    """Bring a version from a store to this machine and load it; what is loaded needs no files.

    Raises:
        StorageError: the store does not answer, or not all of the version can be read.
    """
    folder, version = os.path.split(url)
    with tempfile.TemporaryDirectory(prefix="served-model-") as copy:
        everything = Mirror(
            folder, copy, names=(version,), last=lambda name: 0, translated=lambda name: False
        )
        everything.fetch()
        return load(os.path.join(copy, version))


class Versions:
    """Holds the model in use, and replaces it when a newer one is there."""

    poll_seconds = 1.0
    store_poll_seconds = 10.0
    """Of a store, where each look costs requests."""
    retry_seconds = 60.0
    """After which a version that could not be loaded is tried again: its files may be there now."""

    def __init__(self, folder: str, load: Load, version: str | None = None) -> None:
        """Load the newest version, or `version`.

        Raises:
            ModelError: there is none, or it cannot be loaded.
            StorageError: the store does not answer.
        """
        self._folder, self._load, self._version = folder, load, version
        if not on_disk(folder):
            self.poll_seconds = self.store_poll_seconds
            self._load = functools.partial(load_copy, load=load)
        # A thread of its own: who stops the server does not wait for a store that does not answer.
        self._thread = ThreadPoolExecutor(1)
        path = find_newest(folder, version)
        if path is None:
            what = f"version {version}" if version else "model"
            raise ModelError(
                f"There is no {what} in {folder}: a run pushes one if it is blessed; --output "
                "names the folder of the runs."
            )
        try:
            self.current = self._load(path)
        except StorageError:
            raise
        except Exception as error:
            raise ModelError(f"Cannot load the model in {path}: {error}") from error
        self._failed: dict[str, str] = {}
        self._retry = 0.0
        self._loading: str | None = None

    @property
    def states(self) -> list[VersionState]:
        """The versions that are known, the newest first."""
        states = [VersionState(self.current.version, "AVAILABLE")]
        states += [VersionState(name, "END", error) for name, error in self._failed.items()]
        if self._loading:
            states.append(VersionState(self._loading, "LOADING"))
        return sorted(states, key=lambda one: int(one.version), reverse=True)

    async def watch(self) -> None:
        """Look for another version, again and again, until cancelled."""
        while self._version is None:
            await asyncio.sleep(self.poll_seconds)
            await self.update()

    async def update(self) -> None:
        """Take up the newest version if it is another one; keep the old one if that fails.

        Requests that have begun end with the model that they began with.
        """
        try:
            path = await self._do(find_newest, self._folder)
        except StorageError as error:
            _LOGGER.warning("Cannot look for other versions: %s", error)
            return
        name = os.path.basename(path or "")
        if path is None or name == self.current.version:
            return
        if name in self._failed and time.monotonic() < self._retry:
            return
        self._loading = name
        try:
            self.current = await self._do(self._load, path)
            self._failed.pop(name, None)
            _LOGGER.warning("Version %s is served from now on.", name)
        except Exception as error:
            self._failed[name] = str(error).strip()[:500] or type(error).__name__
            self._retry = time.monotonic() + self.retry_seconds
            _LOGGER.warning("Version %s cannot be loaded: %s", name, self._failed[name])
        finally:
            self._loading = None

    async def _do(self, task: Callable[[str], _Done], path: str) -> _Done:
        return await asyncio.get_running_loop().run_in_executor(self._thread, task, path)

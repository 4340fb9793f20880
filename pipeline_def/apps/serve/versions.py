"""The served version: the newest complete one, loaded while the previous one keeps serving.

A version in an object store is copied to this machine first.
"""

import asyncio
import functools
import logging
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from components.contract.artifact_files import on_disk
from components.contract.errors import ModelError, StorageError, UserError
from components.storage.mirror import Mirror
from pipeline_def.apps.serve.model import Model
from pipeline_def.local.pushed_model import find_version

_LOGGER = logging.getLogger(__name__)
_Result = TypeVar("_Result")

Load = Callable[[str], Model]
"""Loads and warms up the model in a local folder."""


def load_copy(url: str, load: Load) -> Model:
    """Copy a version from a store to this machine and load it. A loaded model needs no files.

    Raises:
        StorageError: the store does not respond, or the version is incomplete.
    """
    folder, version = os.path.split(url)
    with tempfile.TemporaryDirectory(prefix="served-model-") as copy:
        everything = Mirror(
            folder, copy, names=(version,), last=lambda name: 0, translated=lambda name: False
        )
        everything.fetch()
        return load(os.path.join(copy, version))


class Versions:
    """Holds the current model and replaces it when a newer version appears."""

    poll_seconds = 1.0
    store_poll_seconds = 10.0
    """Interval for object stores, where each poll costs requests."""
    retry_seconds = 60.0
    """Interval before retrying a version that failed to load: its files may be complete by then."""

    def __init__(self, folder: str, load: Load, version: str | None = None) -> None:
        """Load the newest version, or `version`.

        Raises:
            ModelError: there is none, or it cannot be loaded.
            StorageError: the store does not respond.
        """
        self._folder, self._load, self._version = folder, load, version
        if not on_disk(folder):
            self.poll_seconds = self.store_poll_seconds
            self._load = functools.partial(load_copy, load=load)
        # A separate thread, so that stopping the server does not wait for an unresponsive store.
        self._thread = ThreadPoolExecutor(1)
        path = find_version(folder, version)
        try:
            self.current = self._load(path)
        except StorageError:
            raise
        except Exception as error:
            raise ModelError(f"Cannot load the model in {path}: {error}") from error
        self._failed: dict[str, str] = {}
        self._retry = 0.0
        self._trouble = ""

    @property
    def states(self) -> list[dict[str, Any]]:
        """Known versions, newest first, as in `model_version_status` of TensorFlow Serving."""
        states = [_describe(self.current.version, "AVAILABLE")]
        states += [_describe(name, "END", error) for name, error in self._failed.items()]
        return sorted(states, key=lambda state: int(state["version"]), reverse=True)

    async def watch(self) -> None:
        """Poll for other versions until cancelled."""
        while self._version is None:
            await asyncio.sleep(self.poll_seconds)
            await self.update()

    async def update(self) -> None:
        """Load the newest version if it changed; keep the old one if that fails.

        Requests in progress finish with the model that they started with.
        """
        path = await self._find_newest()
        name = os.path.basename(path or "")
        if path is None or name == self.current.version:
            return
        if name in self._failed and time.monotonic() < self._retry:
            return
        try:
            self.current = await self._run(self._load, path)
            _LOGGER.warning("Now serving version %s.", name)
            self._failed.pop(name, None)
        except Exception as error:
            self._failed[name] = str(error).strip()[:500] or type(error).__name__
            self._retry = time.monotonic() + self.retry_seconds
            _LOGGER.warning("Version %s cannot be loaded: %s", name, self._failed[name])

    async def _find_newest(self) -> str | None:
        """Return the newest version; None, with one log line, while it cannot be found."""
        path, trouble = None, ""
        try:
            path = await self._run(find_version, self._folder)
        except UserError as error:
            trouble = str(error)
        if trouble and trouble != self._trouble:
            _LOGGER.warning("Cannot look for other versions: %s", trouble)
        self._trouble = trouble
        return path

    async def _run(self, task: Callable[[str], _Result], path: str) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, task, path)


def _describe(version: str, state: str, error: str = "") -> dict[str, Any]:
    status = {"error_code": "UNKNOWN" if error else "OK", "error_message": error}
    return {"version": version, "state": state, "status": status}

"""The served version: the newest complete one, loaded while the previous one keeps serving.

A version in an object store is copied to this machine first.
"""

import asyncio
import functools
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from components.contract.artifact_files import on_disk
from components.contract.errors import ModelError, StorageError, UserError
from components.storage.folder import is_file, read_bytes, replace_file
from components.storage.mirror import Mirror
from components.storage.saved_model import read_rollback, whole_versions
from pipeline_def.local.server.canary import Canary, CanaryOptions
from pipeline_def.local.server.model import Model

_LOGGER = logging.getLogger(__name__)
_Result = TypeVar("_Result")

Load = Callable[[str], Model]
"""Loads and warms up the model in a local folder."""


def find_newest(folder: str, version: str | None = None) -> str | None:
    """Return the newest complete version in a folder, or `version`; None if there is none.

    Raises:
        StorageError: the folder, a path or URL, cannot be listed.
    """
    for path in whole_versions(folder):
        if version in (None, os.path.basename(path)):
            return path
    return None


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
    """Holds the model in use and replaces it when a newer version appears."""

    poll_seconds = 1.0
    store_poll_seconds = 10.0
    """Interval for object stores, where each poll costs requests."""
    retry_seconds = 60.0
    """Interval before retrying a version that failed to load: its files may be complete by then."""

    def __init__(
        self,
        folder: str,
        load: Load,
        version: str | None = None,
        canary: CanaryOptions | None = None,
    ) -> None:
        """Load the newest version, or `version`, or the one that was in use with a canary.

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
        self.canary: Canary | None = None
        self._canary_options = canary
        self._withdrawn, in_use = _read_state(canary.file) if canary else ([], None)
        path = find_newest(folder, version or in_use) or find_newest(folder, version)
        if path is None:
            what = f"version {version}" if version else "model"
            raise ModelError(
                f"There is no {what} in {folder}: run the pipeline until one is blessed, or set "
                "--output to the output folder of a run."
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
        self._trouble = ""
        self._is_recorded = canary is None

    @property
    def states(self) -> list[dict[str, Any]]:
        """Known versions, newest first, as in `model_version_status` of TensorFlow Serving."""
        served = [self.current, *([self.canary.model] if self.canary else [])]
        states = [_describe(model.version, "AVAILABLE") for model in served]
        states += [_describe(name, "END", error) for name, error in self._failed.items()]
        if self._loading:
            states.append(_describe(self._loading, "LOADING"))
        return sorted(states, key=lambda one: int(one["version"]), reverse=True)

    async def watch(self) -> None:
        """Poll for other versions until cancelled."""
        while self._version is None:
            await asyncio.sleep(self.poll_seconds)
            await self.update()

    async def update(self) -> None:
        """Load the newest version if it changed; keep the old one if that fails.

        Requests in progress finish with the model that they started with.
        """
        if not self._is_recorded:
            await self._record()
        path = await self._find_newest()
        name = os.path.basename(path or "")
        tried = self.canary.model.version if self.canary else None
        if path is None or name == tried or name in self._withdrawn:
            return
        if name == self.current.version:
            self.canary = None  # Its version is gone.
            return
        if name in self._failed and time.monotonic() < self._retry:
            return
        self._loading = name
        try:
            model = await self._run(self._load, path)
            # A rollback is wanted at once.
            if self._canary_options and not await self._run(read_rollback, path):
                self.canary = Canary(model, self.current, self._canary_options)
                share = self._canary_options.share
                _LOGGER.warning("Version %s also answers %.0f%% of requests.", name, share * 100)
            else:
                self.current, self.canary = model, None
                self._is_recorded = self._canary_options is None
                _LOGGER.warning("Now serving version %s.", name)
            self._failed.pop(name, None)
        except Exception as error:
            self._failed[name] = str(error).strip()[:500] or type(error).__name__
            self._retry = time.monotonic() + self.retry_seconds
            _LOGGER.warning("Version %s cannot be loaded: %s", name, self._failed[name])
        finally:
            self._loading = None

    def settle(self, canary: Canary, verdict: bool | None, reason: str = "") -> None:
        """End a canary by a verdict as of `Canary.decide`."""
        if verdict is None or canary is not self.canary:
            return
        name, reason = canary.model.version, reason or str(canary)
        self.canary, self._is_recorded = None, False
        if verdict:
            self.current = canary.model
            _LOGGER.warning("Now serving version %s: %s.", name, reason)
        else:
            self._withdrawn.append(name)
            self._failed[name] = f"withdrawn: {reason}"
            _LOGGER.warning("Version %s is withdrawn: %s.", name, reason)

    async def _record(self) -> None:
        """Keep which version is in use for the next start; say so if that fails."""
        assert self._canary_options
        self._is_recorded = True
        state = {"in_use": self.current.version, "withdrawn": self._withdrawn[-100:]}
        content = json.dumps(state).encode()
        try:
            await self._run(lambda file: replace_file(file, content), self._canary_options.file)
        except StorageError as error:
            _LOGGER.warning("The next start will not know which version is in use: %s", error)

    async def _find_newest(self) -> str | None:
        """Return the newest version; None, with one log line, while the store fails."""
        path, trouble = None, ""
        try:
            path = await self._run(find_newest, self._folder)
        except UserError as error:
            trouble = str(error)
        if trouble and trouble != self._trouble:
            _LOGGER.warning("Cannot look for other versions: %s", trouble)
        self._trouble = trouble
        return path

    async def _run(self, task: Callable[[str], _Result], path: str) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, task, path)


def _read_state(file: str) -> tuple[list[str], str | None]:
    """Return the withdrawn versions, and the one in use, as `Versions` has recorded them."""
    if not is_file(file):
        return [], None
    try:
        state = json.loads(read_bytes(file))
        return [*map(str, state["withdrawn"])], str(state["in_use"])
    except (ValueError, TypeError, LookupError) as error:
        raise StorageError(f"{file} is damaged: remove it to start with the newest.") from error


def _describe(version: str, state: str, error: str = "") -> dict[str, Any]:
    status = {"error_code": "UNKNOWN" if error else "OK", "error_message": error}
    return {"version": version, "state": state, "status": status}

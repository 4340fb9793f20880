"""The output of a run: a folder here, or a URL whose working copy is a folder here."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from components.contract.errors import StorageError
from components.storage.artifact_files import on_disk
from components.storage.folder import CLOUD_STORAGE
from pipeline_def.config.config import Config
from pipeline_def.layout import Layout

if TYPE_CHECKING:
    from components.storage.mirror import Mirror

_LOGGER = logging.getLogger(__name__)
# Checkpoints of a long step are stored meanwhile; seconds.
_EVERY = 60.0

_LAYOUT = Layout("")
# What grows all the time is stored at the end.
_AT_THE_END = (_LAYOUT.logs,)
_DURING = (
    *(_LAYOUT.artifacts, _LAYOUT.checkpoints, _LAYOUT.listings, _LAYOUT.statistics),
    *(_LAYOUT.pushed, _LAYOUT.runs, _LAYOUT.metadata),
    *(_LAYOUT.schema, _LAYOUT.summary, _LAYOUT.report, _LAYOUT.comparison),
)
RECORDS = (_LAYOUT.runs,)
"""What the history of an output is read from."""
ASKED = (_LAYOUT.runs, _LAYOUT.pushed)
"""What a pushed model is asked with."""

# Names that others look at first: what they point to is there before them.
_POINTERS = ("saved_model.pb", "checkpoint")


class Output:
    """The folder that a run works in, and what keeps a store up to date with it, if any."""

    def __init__(self, folder: str, mirror: Mirror | None = None) -> None:
        """Work in `folder`."""
        self.folder = folder
        self._mirror = mirror

    @property
    def url(self) -> str:
        """URL in the store; "" for a folder alone."""
        return self._mirror.url if self._mirror else ""

    def shown(self, path: str) -> str:
        """Return where others find a path of the folder, if TensorFlow can read it there."""
        below = f"{self.folder}/"
        if not self.url.startswith(CLOUD_STORAGE) or not path.startswith(below):
            return path
        return f"{self.url}/{path.removeprefix(below)}"

    def found(self, place: str) -> str:
        """Return where what others find at `place` lies in the folder."""
        below = f"{self.url}/"
        if not self.url or not place.startswith(below):
            return place
        return f"{self.folder}/{place.removeprefix(below)}"

    def store(self, names: Collection[str] | None = None) -> None:
        """Bring what is new in the folder into the store.

        Raises:
            StorageError: the store does not take it.
        """
        if self._mirror:
            self._mirror.store(names)

    def store_step(self) -> None:
        """Bring what a step has written into the store; likewise."""
        self.store(_DURING)

    @contextlib.contextmanager
    def storing(self) -> Iterator[None]:
        """Store checkpoints while a step runs, and the record of a run that fails or is stopped."""
        if not self._mirror:
            yield
            return
        done = threading.Event()
        watch = threading.Thread(target=self._store_checkpoints, args=(done,), daemon=True)
        watch.start()
        try:
            yield
        except StorageError:
            # Most likely of the same store, which has been waited for.
            raise
        except BaseException:
            with contextlib.suppress(StorageError):
                self.store((_LAYOUT.runs, _LAYOUT.checkpoints))
            raise
        finally:
            done.set()
            watch.join()

    def _store_checkpoints(self, done: threading.Event) -> None:
        while not done.wait(_EVERY):
            try:
                self.store((_LAYOUT.checkpoints,))
            except Exception as error:  # The end of the step tries again, and says what is wrong.
                _LOGGER.warning("Cannot store the checkpoints: %s", error)


def open_output(config: Config, names: Collection[str] | None = None) -> tuple[Config, Output]:
    """Return the configuration with a folder of this machine for its output, and the output.

    Args:
        config: with absolute paths.
        names: what of the store is brought here; None: everything.

    Raises:
        StorageError: the store does not answer, or has no such bucket.
    """
    if on_disk(config.output):
        return config, Output(config.output)
    # It takes a part of a second to import.
    from components.storage.mirror import Mirror

    url, folder = config.output, working_folder(config)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"Cannot write to {folder} ({error.strerror}): name another --working_copy."
        ) from error
    mirror = Mirror(
        url,
        folder,
        names=(*_DURING, *_AT_THE_END),
        last=_rank,
        translated=lambda name: name == _LAYOUT.summary or name.endswith("/run.json"),
    )
    mirror.fetch(names)
    return dataclasses.replace(config, output=folder), Output(folder, mirror)


def working_folder(config: Config) -> str:
    """Return the folder of this machine that a run works in.

    Args:
        config: with absolute paths.
    """
    if on_disk(config.output):
        return config.output
    return config.working_copy or str(_default_folder(config.output))


def _default_folder(url: str) -> Path:
    """Return the folder of this user for a URL, named after it.

    Source: `XDG_STATE_HOME` in the XDG Base Directory Specification.
    """
    named = Path(os.environ.get("XDG_STATE_HOME", ""))
    root = named if named.is_absolute() else Path("~/.local/state").expanduser()
    return root / "tfx-image-pipeline" / url.replace("://", "/", 1)


def _rank(name: str) -> int:
    """Return when a file is stored: first what others point to, then what points to it."""
    if name.startswith((f"{_LAYOUT.runs}/", _LAYOUT.metadata)) or "/" not in name:
        return 2
    return int(os.path.basename(name) in _POINTERS)

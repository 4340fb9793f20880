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

from components.contract.errors import ConfigurationError, StorageError
from components.storage.folder import CLOUD_STORAGE
from components.storage.object_store import SCHEMES
from pipeline_def.config.config import Config
from pipeline_def.layout import Layout

if TYPE_CHECKING:
    from components.storage.mirror import Mirror

_LOGGER = logging.getLogger(__name__)
_STORES = (*CLOUD_STORAGE, *SCHEMES)
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
    if "://" not in config.output:
        return config, Output(config.output)
    # It takes a part of a second to import.
    from components.storage.mirror import Mirror

    url = config.output
    folder = config.working_copy or str(_default_folder(url))
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


def check_url(output: str) -> None:
    """Raise `ConfigurationError` for a URL that nothing can be written to."""
    if wrong := _find_mistake(output):
        raise ConfigurationError(
            f"--output {output} {wrong}: give a folder, gs://BUCKET/FOLDER or s3://BUCKET/FOLDER."
        )


def _find_mistake(output: str) -> str:
    scheme, slashes, place = output.partition("://")
    if not slashes:
        meant = output.startswith(tuple(store.removesuffix("//") for store in _STORES))
        return "looks like a URL, but one slash is missing, or two" if meant else ""
    if f"{scheme}://" not in _STORES:
        return f"is in no store that can be written to: {scheme}"
    bucket, *folders = place.rstrip("/").split("/")
    if not bucket:
        return "names no bucket"
    # The working copy is named after it.
    odd = any(part in ("", ".", "..") for part in (bucket, *folders))
    return "has a part that is empty, . or .." if odd else ""


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

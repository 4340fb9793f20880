"""The output of a run: a local folder, or a URL with a local working copy."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from components.contract.artifact_files import on_disk
from components.contract.errors import StorageError
from components.contract.example import INDEX_FILE
from components.storage.folder import CLOUD_STORAGE
from pipeline_def.layout import Layout, state_folder

if TYPE_CHECKING:
    from components.storage.mirror import Mirror

_LOGGER = logging.getLogger(__name__)
# Checkpoints are stored at this interval during a step, seconds.
_CHECKPOINT_INTERVAL = 60.0

_LAYOUT = Layout("")
# Logs grow all the time.
_AT_THE_END = (_LAYOUT.logs,)
_DURING = (
    *(_LAYOUT.artifacts, _LAYOUT.checkpoints, _LAYOUT.listings, _LAYOUT.statistics),
    *(_LAYOUT.pushed, _LAYOUT.runs, _LAYOUT.metadata),
    *(_LAYOUT.summary, _LAYOUT.comparison, _LAYOUT.report, _LAYOUT.refused_report),
)
RECORDS = (_LAYOUT.runs,)
"""What to fetch for the history of an output."""
MODELS = (_LAYOUT.runs, _LAYOUT.pushed)
"""What to fetch to predict with a pushed model."""

# Readers look for these files first, so they are copied after the files they refer to.
_POINTERS = ("saved_model.pb", "checkpoint", INDEX_FILE)


class Output:
    """The local folder of a run, and its mirror in a store, if any."""

    def __init__(self, folder: str, mirror: Mirror | None = None) -> None:
        """Work in `folder`."""
        self.folder = folder
        self._mirror = mirror

    @property
    def url(self) -> str:
        """URL in the store; "" for a local folder."""
        return self._mirror.url if self._mirror else ""

    def shown(self, path: str) -> str:
        """Return the URL of a path in the folder if TensorFlow can read it there, else the path."""
        below = f"{self.folder}/"
        if not self.url.startswith(CLOUD_STORAGE) or not path.startswith(below):
            return path
        return f"{self.url}/{path.removeprefix(below)}"

    def store(self, names: Collection[str] | None = None) -> None:
        """Upload what is new in the folder.

        Raises:
            StorageError: the upload failed.
        """
        if self._mirror:
            self._mirror.store(names)

    def store_step(self) -> None:
        """Upload what a step has written."""
        self.store(_DURING)

    @contextlib.contextmanager
    def storing(self) -> Iterator[None]:
        """Upload checkpoints during a step, and the record of a failed or interrupted run."""
        if not self._mirror:
            yield
            return
        done = threading.Event()
        watch = threading.Thread(target=self._store_checkpoints, args=(done,), daemon=True)
        watch.start()
        try:
            yield
        except StorageError:
            # Most likely from the same store, after all retries.
            raise
        except BaseException:
            with contextlib.suppress(StorageError):
                self.store((_LAYOUT.runs, _LAYOUT.checkpoints))
            raise
        finally:
            done.set()
            watch.join()

    def _store_checkpoints(self, done: threading.Event) -> None:
        while not done.wait(_CHECKPOINT_INTERVAL):
            try:
                self.store((_LAYOUT.checkpoints,))
            except Exception as error:  # The end of the step tries again and raises.
                _LOGGER.warning("Cannot store the checkpoints: %s", error)


def open_output(output: str, names: Collection[str] | None = None) -> Output:
    """Open an output, an absolute path or a URL; fetch `names` from the store, or all.

    Raises:
        StorageError: the store does not respond, or has no such bucket.
    """
    if on_disk(output):
        return Output(output)
    # Importing it takes a fraction of a second.
    from components.storage.mirror import Mirror

    folder = working_folder(output)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"Cannot write to {folder} ({error.strerror}): set XDG_STATE_HOME to another folder."
        ) from error
    mirror = Mirror(
        output,
        folder,
        names=(*_DURING, *_AT_THE_END),
        last=_rank,
        translated=lambda name: name == _LAYOUT.summary or name.endswith("/run.json"),
    )
    mirror.fetch(names)
    return Output(folder, mirror)


def working_folder(output: str) -> str:
    """Return the local folder that a run works in, for an output, an absolute path or a URL."""
    return output if on_disk(output) else str(state_folder() / output.replace("://", "/", 1))


def _rank(name: str) -> int:
    """Return the order in which a file is stored: first what others refer to."""
    if name.startswith((f"{_LAYOUT.runs}/", _LAYOUT.metadata)) or "/" not in name:
        return 2
    return int(os.path.basename(name) in _POINTERS)

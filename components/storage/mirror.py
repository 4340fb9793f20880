"""Keep a local folder and its copy in a store alike, so that a run survives its machine.

SQLite, and much of what TFX's libraries write with, needs a disk; and with one client for all
transfers, one retry policy holds. Others read the store; this machine works on its local copy.
"""

import asyncio
import contextlib
import hashlib
import itertools
import json
import os
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from typing import Any, NamedTuple

import fsspec

from components.contract.artifact_files import move_paths
from components.contract.errors import StorageError
from components.storage.fetch import Unread, read_remote
from components.storage.folder import open_folder, storage_error
from components.storage.folder_listing import Found, find_files
from components.storage.retry import checksum_matches

_LEDGER = ".mirror.json"
_UNFINISHED = ".unfinished"
_CONCURRENT = 32
# Only one larger file is held in memory at a time.
_LARGE = 8 * 2**20


class Entry(NamedTuple):
    """A file when it was last equal to its object."""

    size: int
    mtime_ns: int
    version: str
    """Version of the object."""


class Mirror:
    """Copies changes between a folder and the objects below a URL, on demand."""

    def __init__(
        self,
        url: str,
        folder: str,
        *,
        names: Collection[str],
        last: Callable[[str], int],
        translated: Callable[[str], bool],
    ) -> None:
        """Start from the ledger that the folder keeps.

        Args:
            url: folder in a store.
            folder: folder on this machine.
            names: files and folders directly in it that are copied.
            last: returns the rank of a file; files of higher rank are copied after all others.
            translated: returns whether a file contains local paths, which become URLs in the store.
        """
        self.url, self.folder = url.rstrip("/"), folder
        self._names, self._rank, self._translated = names, last, translated
        self._fs, self._root = open_folder(self.url)
        self._lock = threading.Lock()
        self._known = self._read_ledger()

    def fetch(self, names: Collection[str] | None = None) -> int:
        """Download what is missing or outdated here; return the number of files."""
        with self._lock:
            objects = {f.path: f for f in find_files(self.url) if self._is_ours(f.path, names)}
            wanted = [f for f in objects.values() if not f.problem and not self._has(f)]
            ours = [name for name in self._known if self._is_ours(name, names)]
            for name in set(ours) - objects.keys():
                del self._known[name]
            with self._updating_ledger():
                for now in self._in_order(file.path for file in wanted):
                    self._run((objects[name].size, self._fetch(objects[name])) for name in now)
            return len(wanted)

    def store(self, names: Collection[str] | None = None) -> None:
        """Upload what has changed here, and delete in the store what was removed here.

        Raises `StorageError` if somebody else has written to it.
        """
        with self._lock:
            here = dict(self._list(names))
            changed = [
                name
                for name, entry in here.items()
                if (known := self._known.get(name)) is None or known[:2] != entry[:2]
            ]
            gone = [n for n in self._known if self._is_ours(n, names) and n not in here]
            if not changed and not gone:
                return
            with self._updating_ledger():
                for now in self._in_order(changed):
                    self._run((here[name].size, self._store(name, here[name])) for name in now)
                self._run((0, self._remove(name)) for name in gone)

    def _in_order(self, names: Iterable[str]) -> Iterator[list[str]]:
        """Yield the names of each rank, those first that others refer to."""
        for _, names_of_rank in itertools.groupby(sorted(names, key=self._rank), key=self._rank):
            yield list(names_of_rank)

    def _has(self, listed: Found) -> bool:
        known = self._known.get(listed.path)
        is_same = known is not None and known.version == listed.version
        return is_same and os.path.isfile(self._path(listed.path))

    def _is_ours(self, name: str, names: Collection[str] | None) -> bool:
        """Return whether a name is copied; objects may have any name."""
        parts = name.split("/")
        odd = any(not part or part.startswith(".") or "\0" in part for part in parts)
        names = self._names if names is None else names
        return not odd and not name.endswith(_UNFINISHED) and parts[0] in names

    def _list(self, names: Collection[str] | None) -> Iterator[tuple[str, Entry]]:
        for top in self._names if names is None else names:
            files = find_files(self._path(top)) if os.path.isdir(self._path(top)) else []
            for name in (top, *(f"{top}/{file.path}" for file in files)):
                if self._is_ours(name, names) and (entry := self._stat(name)):
                    yield name, entry

    def _stat(self, name: str) -> Entry | None:
        path = self._path(name)
        if not os.path.isfile(path):
            return None
        status = os.stat(path)
        return Entry(status.st_size, status.st_mtime_ns, "")

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    async def _fetch(self, listed: Found) -> None:
        path = self._path(listed.path)
        if not (os.path.isfile(path) and _is_same(listed, self._read(listed.path))):
            data = await read_remote(self._fs, f"{self._root}/{listed.path}", listed)
            if isinstance(data, Unread):
                raise StorageError(f"Cannot read {self.url}/{listed.path}: {data.reason}.")
            if self._translated(listed.path):
                data = move_paths(data, self.url, self.folder)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(f"{path}{_UNFINISHED}", "wb") as file:
                file.write(data)
            os.replace(f"{path}{_UNFINISHED}", path)
        status = os.stat(path)
        self._known[listed.path] = Entry(status.st_size, status.st_mtime_ns, listed.version)

    async def _store(self, name: str, seen: Entry) -> None:
        try:
            data = self._read(name)
        except FileNotFoundError:
            return
        # A file that is being written waits for the next time.
        if self._stat(name) != seen:
            return
        known = self._known.get(name)
        target = f"{self._root}/{name}"
        version = await self._fs.write_version(target, data, known.version if known else "")
        self._known[name] = seen._replace(version=version)

    async def _remove(self, name: str) -> None:
        await self._fs.delete_version(f"{self._root}/{name}", self._known[name].version)
        del self._known[name]

    def _read(self, name: str) -> bytes:
        """Read a file as it is stored."""
        with open(self._path(name), "rb") as file:
            data = file.read()
        return move_paths(data, self.folder, self.url) if self._translated(name) else data

    def _run(self, tasks: Iterable[tuple[int, Coroutine[Any, Any, None]]]) -> None:
        """Run tasks, each with its size in bytes, concurrently on the store's event loop."""
        try:
            fsspec.asyn.sync(self._fs.loop, _gather, list(tasks))
        except FileExistsError as error:
            raise StorageError(
                f"Another process has written to {self.url} at the same time ({error}): give runs "
                "that may overlap different --output folders."
            ) from error
        except Exception as error:  # Each file system has errors of its own.
            raise storage_error("read or write", self.url, error) from error

    def _read_ledger(self) -> dict[str, Entry]:
        with contextlib.suppress(OSError, ValueError, TypeError), open(self._path(_LEDGER)) as file:
            ledger = json.load(file)
            if ledger["url"] == self.url:
                return {name: Entry(*fields) for name, fields in ledger["files"].items()}
        return {}

    @contextlib.contextmanager
    def _updating_ledger(self) -> Iterator[None]:
        """Record which files equal their objects, even if some transfers fail."""
        try:
            yield
        finally:
            path = self._path(_LEDGER)
            with open(f"{path}{_UNFINISHED}", "w") as file:
                json.dump({"url": self.url, "files": self._known}, file)
            os.replace(f"{path}{_UNFINISHED}", path)


async def _gather(tasks: Iterable[tuple[int, Coroutine[Any, Any, None]]]) -> None:
    small, large = asyncio.Semaphore(_CONCURRENT), asyncio.Lock()

    async def run(size: int, task: Coroutine[Any, Any, None]) -> None:
        async with large if size > _LARGE else small:
            await task

    await asyncio.gather(*itertools.starmap(run, tasks))


def _is_same(listed: Found, data: bytes) -> bool:
    """Compare data with the checksum of a listing, or with the ETag of S3."""
    if listed.checksum.startswith("crc32c:"):
        return checksum_matches(data, listed.checksum)
    # Differs for an object uploaded in parts, which is then fetched again.
    return hashlib.md5(data, usedforsecurity=False).hexdigest() == listed.version.strip('"')

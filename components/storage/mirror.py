"""A folder here and its copy in a store: what a run writes survives its machine.

SQLite, and much of what TFX's libraries write with, needs a disk; and only one client of a store
then decides what is asked again. The store holds what others read; this machine works on its copy.
"""

from __future__ import annotations

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

from components.contract.errors import StorageError
from components.storage.fetch import Unread, checksum_holds, read_remote
from components.storage.folder import Found, find_files, open_folder, storage_error

_LEDGER = ".mirror.json"
_UNFINISHED = ".unfinished"
_AT_ONCE = 32
# Of larger files one is held in memory at a time.
_LARGE = 8 * 2**20


class Entry(NamedTuple):
    """A file as it was when it was equal to its object."""

    size: int
    mtime_ns: int
    version: str
    """Of the object."""


class Mirror:
    """Keeps a folder and the objects below a URL alike, on demand."""

    def __init__(
        self,
        url: str,
        folder: str,
        *,
        names: Collection[str],
        last: Callable[[str], int],
        translated: Callable[[str], bool],
    ) -> None:
        """Begin with what the folder notes of the last time.

        Args:
            url: in a store.
            folder: on this machine.
            names: files and folders directly in it that belong to the copy.
            last: rank of a file, from 0 on; those of a higher rank are stored after all others.
            translated: whether a file names paths in the folder, which become URLs in the store.
        """
        self.url, self.folder = url.rstrip("/"), folder
        self._names, self._rank, self._translated = names, last, translated
        self._fs, self._root = open_folder(self.url)
        self._lock = threading.Lock()
        self._known = self._read_ledger()

    def fetch(self, names: Collection[str] | None = None) -> int:
        """Bring what is in the store and not here, or newer there; return the number of files.

        Raises:
            StorageError: the store does not answer, or there is no such bucket.
        """
        with self._lock:
            found = {f.path: f for f in find_files(self.url) if self._is_ours(f.path, names)}
            wanted = [f for f in found.values() if f.is_file and self._is_newer(f)]
            ours = [name for name in self._known if self._is_ours(name, names)]
            for name in set(ours) - found.keys():
                del self._known[name]
            with self._noting():
                self._run((file.size, self._fetch(file)) for file in wanted)
            return len(wanted)

    def store(self, names: Collection[str] | None = None) -> None:
        """Bring what is new here into the store, and remove there what was removed here.

        Raises:
            StorageError: the store does not answer, or somebody else has written to it.
        """
        with self._lock:
            here = dict(self._list(names))
            changed = [name for name, entry in here.items() if self._has_changed(name, entry)]
            gone = [n for n in self._known if self._is_ours(n, names) and n not in here]
            if not changed and not gone:
                return
            with self._noting():
                for rank in sorted({self._rank(name) for name in changed}):
                    now = [name for name in changed if self._rank(name) == rank]
                    self._run((here[name].size, self._store(name, here[name])) for name in now)
                self._run((0, self._remove(name)) for name in gone)

    def _is_newer(self, found: Found) -> bool:
        known, here = self._known.get(found.path), self._stat(found.path)
        return here is None or known is None or known.version != found.version

    def _has_changed(self, name: str, entry: Entry) -> bool:
        known = self._known.get(name)
        return known is None or known[:2] != entry[:2]

    def _is_ours(self, name: str, names: Collection[str] | None) -> bool:
        """Say whether a name may be mirrored; one of an object may be anything."""
        parts = name.split("/")
        odd = any(not part or part.startswith(".") or "\0" in part for part in parts)
        names = self._names if names is None else names
        return not odd and not name.endswith(_UNFINISHED) and parts[0] in names

    def _list(self, names: Collection[str] | None) -> Iterator[tuple[str, Entry]]:
        for above, folders, files in os.walk(self.folder):
            relative = os.path.relpath(above, self.folder)
            below = "" if relative == "." else f"{relative}/"
            folders[:] = [f for f in folders if self._is_ours(below + f, names)]
            for name in (below + file for file in files):
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

    async def _fetch(self, found: Found) -> None:
        path = self._path(found.path)
        if not (os.path.isfile(path) and _is_same(found, self._read(found.path))):
            data = await self._download(found)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(f"{path}{_UNFINISHED}", "wb") as file:
                file.write(self._inward(found.path, data))
            os.replace(f"{path}{_UNFINISHED}", path)
        status = os.stat(path)
        self._known[found.path] = Entry(status.st_size, status.st_mtime_ns, found.version)

    async def _download(self, found: Found) -> bytes:
        content = await read_remote(self._fs, f"{self._root}/{found.path}", found)
        if isinstance(content, Unread):
            raise StorageError(f"Cannot read {self.url}/{found.path}: {content.reason}.")
        return content

    async def _store(self, name: str, seen: Entry) -> None:
        try:
            data = self._read(name)
        except FileNotFoundError:
            return
        # Somebody is writing it: next time.
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
        """Read a file as it is in the store."""
        with open(self._path(name), "rb") as file:
            data = file.read()
        return _replace(data, self.folder, self.url) if self._translated(name) else data

    def _inward(self, name: str, data: bytes) -> bytes:
        return _replace(data, self.url, self.folder) if self._translated(name) else data

    def _run(self, tasks: Iterable[tuple[int, Coroutine[Any, Any, None]]]) -> None:
        """Run tasks of so many bytes, some at a time, on the event loop of the store."""
        try:
            fsspec.asyn.sync(self._fs.loop, _gather, list(tasks))
        except FileExistsError as error:
            raise StorageError(
                f"{self.url} was written to by somebody else at the same time ({error}): give "
                "every run that may overlap with another an --output of its own."
            ) from error
        except Exception as error:  # Each file system has errors of its own.
            raise storage_error("read or write", self.url, error) from error

    def _read_ledger(self) -> dict[str, Entry]:
        with contextlib.suppress(OSError, ValueError, TypeError), open(self._path(_LEDGER)) as file:
            found = json.load(file)
            if found["url"] == self.url:
                return {name: Entry(*fields) for name, fields in found["files"].items()}
        return {}

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        """Note in the folder what is equal to its object, also if not all of it came to be."""
        try:
            yield
        finally:
            self._write_ledger()

    def _write_ledger(self) -> None:
        path = self._path(_LEDGER)
        with open(f"{path}{_UNFINISHED}", "w") as file:
            json.dump({"url": self.url, "files": self._known}, file)
        os.replace(f"{path}{_UNFINISHED}", path)


async def _gather(tasks: Iterable[tuple[int, Coroutine[Any, Any, None]]]) -> None:
    some, one = asyncio.Semaphore(_AT_ONCE), asyncio.Lock()

    async def run(size: int, task: Coroutine[Any, Any, None]) -> None:
        async with one if size > _LARGE else some:
            await task

    await asyncio.gather(*itertools.starmap(run, tasks))


def _is_same(found: Found, data: bytes) -> bool:
    """Compare bytes with a listing, by its checksum or by the ETag of S3."""
    if found.checksum:
        return checksum_holds(data, found.checksum)
    # Not so for an object that somebody has uploaded in parts: it is fetched, to be sure.
    return hashlib.md5(data, usedforsecurity=False).hexdigest() == found.version.strip('"')


def _replace(data: bytes, old: str, new: str) -> bytes:
    """Replace the beginning of paths in JSON."""
    before, after = (json.dumps(text)[1:-1].encode() for text in (old, new))
    for end in (b"/", b'"'):
        data = data.replace(before + end, after + end)
    return data

"""Reading many files: from disk one by one, from a remote store many requests at a time."""

from __future__ import annotations

import asyncio
import base64
import collections
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol, TypeVar

import fsspec
import google_crc32c
from fsspec import AbstractFileSystem
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

from components.contract.errors import StorageError
from components.storage import retry
from components.storage.folder import MISSING, is_local, open_folder


class ListedFile(Protocol):
    """A file as its listing saw it."""

    @property
    def path(self) -> str:
        """Relative to the folder, with "/" between its parts."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def version(self) -> str:
        """Modification time in nanoseconds, or the store's own tag."""

    @property
    def checksum(self) -> str:
        """Of kind "crc32c:" or "md5:", then base64; empty where the listing has none."""


class FetchOptions(Protocol):
    """How much is read at the same time, and what is too large; part of `IngestConfig`."""

    @property
    def requests(self) -> int:
        """Files of a remote store asked for at the same time, by all threads of a worker."""

    @property
    def workers(self) -> int:
        """Threads of a worker."""

    @property
    def max_image_mib(self) -> float:
        """Largest file, MiB."""


class Unread(NamedTuple):
    """Why a file was not read."""

    reason: str
    too_large: bool = False


# The bytes of a file, or why there are none.
Content = bytes | Unread
_File = TypeVar("_File", bound=ListedFile)

# One batch is one task of the event loop: a task per file would cost more than a small file does.
_BATCH_FILES = 32
_BATCH_BYTES = 8 * 2**20
# Held in memory at once, unless a single file is larger.
_WINDOW_BYTES = 64 * 2**20

# Of what arrives damaged or seems to have gone; what a store refuses is asked again by its client.
_ATTEMPTS = 4
# For one attempt with any other file system than Cloud Storage and S3.
_PATIENCE_SECONDS = 180.0


_CHANGED = Unread("it has changed since it was listed")
_DAMAGED = "it arrives damaged"
_GONE = Unread("it has gone since it was listed")


def read_files(
    folder: str, files: Sequence[_File], config: FetchOptions, *, first: int | None = None
) -> Iterator[tuple[_File, Content]]:
    """Yield each file with its bytes, or with the reason why it cannot be used, in order.

    What is yielded is what was listed: the modification time on disk, the ETag on S3, else the
    checksum where the listing has one, and the size are compared.

    Args:
        folder: that was listed, a path or URL.
        files: of it.
        config: how much is read at the same time, and what is too large.
        first: read this many bytes at the beginning of each file only, without their checksum.
    """
    fs, root = open_folder(folder)
    if is_local(fs):
        for file in files:
            yield file, _local_content(f"{root}/{file.path}", file, config, first)
        return
    requests = max(1, config.requests // config.workers)
    batches = _batches(files, most=min(_BATCH_FILES, requests))
    yield from _read_ahead(batches, _batch_reader(fs, root, config, first), requests)


def _refusal(file: ListedFile, config: FetchOptions) -> Unread | None:
    """Return why a file need not be opened, if so."""
    if file.version == MISSING:
        return Unread("there is no such file")
    if file.size > config.max_image_mib * 2**20:
        reason = f"{file.size / 2**20:.1f} MiB, above {config.max_image_mib:g}"
        return Unread(reason, too_large=True)
    return None


def _local_content(path: str, file: ListedFile, config: FetchOptions, first: int | None) -> Content:
    if refused := _refusal(file, config):
        return refused
    size = file.size if first is None else min(first, file.size)
    try:
        # A pipe that took the place of the file would block for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            # One byte more than was listed shows that a file has grown.
            data = os.read(descriptor, size + (first is None))
            while 0 < len(data) < size and (more := os.read(descriptor, size - len(data))):
                data += more
            version = str(os.fstat(descriptor).st_mtime_ns)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return _GONE
    except OSError as error:
        return Unread(error.strerror or str(error))
    return data if len(data) == size and version == file.version else _CHANGED


def _batches(files: Iterable[_File], most: int) -> Iterator[list[_File]]:
    """Group files, in order, into up to `most` a batch, and a few MiB."""
    batch: list[_File] = []
    size = 0
    for file in files:
        if batch and (len(batch) == most or size + file.size > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.size
    if batch:
        yield batch


_Submit = Callable[[list[_File]], Future[list[Content]]]


def _read_ahead(
    batches: Iterable[list[_File]], submit: _Submit[_File], requests: int
) -> Iterator[tuple[_File, Content]]:
    """Keep about `requests` files, and no more than the window's bytes, on their way."""
    waiting: collections.deque[tuple[list[_File], Future[list[Content]]]] = collections.deque()
    count = size = 0
    for batch in batches:
        while waiting and (count + len(batch) > requests or size + _bytes(batch) > _WINDOW_BYTES):
            done, future = waiting.popleft()
            count, size = count - len(done), size - _bytes(done)
            yield from zip(done, future.result(), strict=True)
        waiting.append((batch, submit(batch)))
        count, size = count + len(batch), size + _bytes(batch)
    for done, future in waiting:
        yield from zip(done, future.result(), strict=True)


def _bytes(batch: Iterable[_File]) -> int:
    return sum(file.size for file in batch)


def _batch_reader(
    fs: AbstractFileSystem, root: str, config: FetchOptions, first: int | None
) -> _Submit[_File]:
    """Return what starts reading a batch on fsspec's own event loop, where its sessions live."""
    loop = fsspec.asyn.get_loop()
    if not fs.async_impl:
        fs = AsyncFileSystemWrapper(fs)

    async def read(file: ListedFile) -> Content:
        return _refusal(file, config) or await read_remote(fs, f"{root}/{file.path}", file, first)

    async def read_batch(batch: list[_File]) -> list[Content]:
        return await asyncio.gather(*map(read, batch))

    return lambda batch: asyncio.run_coroutine_threadsafe(read_batch(batch), loop)


async def read_remote(
    fs: AbstractFileSystem, path: str, file: ListedFile, first: int | None = None
) -> Content:
    """Read a file; try again after errors, short reads and wrong checksums, with longer pauses.

    Raises:
        StorageError: the store is out of order, which says nothing of the file.
    """
    size = file.size if first is None else min(first, file.size)
    for attempt in range(_ATTEMPTS):
        found = await _read_once(fs, path, file, size)
        if not isinstance(found, Unread) or found.reason == _CHANGED.reason or _is_refused(found):
            break
        if attempt < _ATTEMPTS - 1:
            pause = retry.RETRY_POLICY.pause(attempt)
            known = found.reason.startswith((_GONE.reason, _DAMAGED))
            cause = found.reason.partition(":")[0] if known else "an error"
            retry.note_retry(cause, f"GET {path}", pause)
            await asyncio.sleep(pause)
    return found


async def _read_once(fs: AbstractFileSystem, path: str, file: ListedFile, size: int) -> Content:
    try:
        data = await _ask(fs, path, file, size)
    except StorageError:
        raise
    except FileNotFoundError:
        return _GONE
    except FileExistsError:
        return _CHANGED
    except Exception as error:  # Each file system has errors of its own.
        return Unread(" ".join(str(error).split()) or type(error).__name__)
    if len(data) == size and (size < file.size or checksum_holds(data, file.checksum)):
        return data
    return Unread(f"{_DAMAGED}: {len(data)} of {size} bytes")


def _is_refused(found: Unread) -> bool:
    # gcsfs raises a plain OSError for 403, with the text of the answer.
    return any(word in found.reason for word in ("Forbidden", "Access Denied", "Permission denied"))


async def _ask(fs: AbstractFileSystem, path: str, file: ListedFile, size: int) -> bytes:
    """Ask once for the first `size` bytes of a file, as it was listed where a store can tell."""
    end = size if 0 < size < file.size else None
    if hasattr(fs, "read_version"):
        return bytes(await fs.read_version(path, file.version, end))
    start = 0 if end else None
    # Nobody knows how long such a file system would wait by itself.
    ask = fs._cat_file(path, start=start, end=end)
    data: bytes = await asyncio.wait_for(ask, _PATIENCE_SECONDS)
    return data


def checksum_holds(data: bytes, checksum: str) -> bool:
    """Compare with the checksum of a listing; one that it lacks always holds."""
    kind, _, expected = checksum.partition(":")
    if kind == "crc32c":
        found = google_crc32c.value(data).to_bytes(4, "big")
    elif kind == "md5":
        found = hashlib.md5(data, usedforsecurity=False).digest()
    else:
        return True
    return base64.b64encode(found).decode() == expected

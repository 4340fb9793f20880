"""Read many files: from disk one by one, from a remote store with many requests at a time."""

import asyncio
import collections
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol, TypeVar

import fsspec
from fsspec import AbstractFileSystem
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

from components.contract.errors import StorageError
from components.storage import retry
from components.storage.folder import POINTER, is_local, is_pointer, open_folder
from components.storage.folder_listing import MISSING, local_version
from components.storage.retry import checksum_matches


class _ListedFile(Protocol):
    """A file as it was listed: `Found`, or a file with a label."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def version(self) -> str: ...

    @property
    def checksum(self) -> str: ...


class _Options(Protocol):
    """Limits of reading: `FileOptions`."""

    @property
    def workers(self) -> int: ...

    @property
    def max_image_mib(self) -> float: ...


class Unread(NamedTuple):
    """Why a file was not read."""

    reason: str
    too_large: bool = False


Content = bytes | Unread
"""The bytes of a file, or why there are none."""
_File = TypeVar("_File", bound=_ListedFile)

# Of one worker at the same time. Each process opens up to 256 connections to Cloud Storage; the
# other requests wait for one, or are already being read.
_REQUESTS = 512
# A batch is one task of the event loop: a task per file would cost more than reading a small file.
_BATCH_FILES = 32
_BATCH_BYTES = 8 * 2**20
# Held in memory at once, unless a single file is larger.
_WINDOW_BYTES = 64 * 2**20

# For damaged and missing files. The store's client retries what the store refuses.
_ATTEMPTS = 4
# For one attempt with a file system other than Cloud Storage and S3.
_TIMEOUT_SECONDS = 180.0

CHANGED = Unread("it has changed since it was listed")
"""Why a file is not used."""
_DAMAGED = "it arrives damaged"
_GONE = Unread("it has gone since it was listed")
# In the text of errors that are not retried: gcsfs raises a plain OSError for 403.
_REFUSED = ("Forbidden", "Access Denied", "Permission denied")


def read_files(
    folder: str, files: Sequence[_File], config: _Options, *, first: int | None = None
) -> Iterator[tuple[_File, Content]]:
    """Yield each file with its bytes, or with the reason why they cannot be used, in order.

    The bytes are those that were listed: size and modification time (disk), ETag (S3) or checksum
    (where the listing has one) are compared. With `first`, only that many bytes from the start of
    each file are read, and no checksums are compared.
    """
    fs, root = open_folder(folder)
    if is_local(fs):
        for file in files:
            yield file, _read_local(f"{root}/{file.path}", file, config, first)
        return
    requests = max(1, _REQUESTS // config.workers)
    batches = _batches(files, most=min(_BATCH_FILES, requests))
    yield from _read_ahead(batches, _batch_reader(fs, root, config, first), requests)


def refuse(file: _ListedFile, config: _Options) -> Unread | None:
    """Return why a file need not be opened, if so."""
    if file.version == MISSING:
        return Unread("there is no such file")
    if file.size > config.max_image_mib * 2**20:
        reason = f"{file.size / 2**20:.1f} MiB exceeds max_image_mib ({config.max_image_mib:g})"
        return Unread(reason, too_large=True)
    return None


def _read_local(path: str, file: _ListedFile, config: _Options, first: int | None) -> Content:
    if refused := refuse(file, config):
        return refused
    size = file.size if first is None else min(first, file.size)
    try:
        # A pipe that has replaced the file would block forever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            # One extra byte shows that a file has grown.
            data = os.read(descriptor, size + (first is None))
            while 0 < len(data) < size and (more := os.read(descriptor, size - len(data))):
                data += more
            version = local_version(os.fstat(descriptor))
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return _GONE
    except OSError as error:
        return Unread(error.strerror or str(error))
    # Backups by hard links, and volumes that are mounted anew, change only the other time.
    same = len(data) == size and version.split()[0] == file.version.split()[0]
    same = same and (first is not None or checksum_matches(data, file.checksum))
    return _resolve(data) if same else CHANGED


def _resolve(content: Content) -> Content:
    """Return the content, or what to do with one that stands for that of the real file."""
    return Unread(POINTER) if isinstance(content, bytes) and is_pointer(content) else content


def _batches(files: Iterable[_File], most: int) -> Iterator[list[_File]]:
    """Group files, in order, into batches of up to `most` files and a few MiB."""
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
    """Keep about `requests` files, but no more than the window's bytes, in flight."""
    waiting: collections.deque[tuple[list[_File], int, Future[list[Content]]]] = collections.deque()
    count = size = 0
    for batch in batches:
        batch_size = sum(file.size for file in batch)
        while waiting and (count + len(batch) > requests or size + batch_size > _WINDOW_BYTES):
            done, done_size, future = waiting.popleft()
            count, size = count - len(done), size - done_size
            yield from zip(done, future.result(), strict=True)
        waiting.append((batch, batch_size, submit(batch)))
        count, size = count + len(batch), size + batch_size
    for done, _, future in waiting:
        yield from zip(done, future.result(), strict=True)


def _batch_reader(
    fs: AbstractFileSystem, root: str, config: _Options, first: int | None
) -> _Submit[_File]:
    """Return a function that starts reading a batch on fsspec's event loop."""
    loop = fsspec.asyn.get_loop()
    if not fs.async_impl:
        fs = AsyncFileSystemWrapper(fs)

    async def read(file: _ListedFile) -> Content:
        return refuse(file, config) or await read_remote(fs, f"{root}/{file.path}", file, first)

    async def read_batch(batch: list[_File]) -> list[Content]:
        return await asyncio.gather(*map(read, batch))

    return lambda batch: asyncio.run_coroutine_threadsafe(read_batch(batch), loop)


async def read_remote(
    fs: AbstractFileSystem, path: str, file: _ListedFile, first: int | None = None
) -> Content:
    """Read a file; retry after errors, short reads and wrong checksums.

    A `StorageError` says that the store is out of order, nothing about the file.
    """
    size = file.size if first is None else min(first, file.size)
    for attempt in range(_ATTEMPTS):
        content = await _read_once(fs, path, file, size)
        if not isinstance(content, Unread) or content == CHANGED:
            break
        if any(word in content.reason for word in _REFUSED):
            break
        if attempt < _ATTEMPTS - 1:
            known = content.reason.startswith((_GONE.reason, _DAMAGED))
            cause = content.reason.partition(":")[0] if known else "an error"
            pause = retry.RETRY_POLICY.pause(attempt)
            await retry.pause_before_retry(cause, f"GET {path}", pause)
    return _resolve(content)


async def _read_once(fs: AbstractFileSystem, path: str, file: _ListedFile, size: int) -> Content:
    end = size if 0 < size < file.size else None
    try:
        if hasattr(fs, "read_version"):
            data = bytes(await fs.read_version(path, file.version, end))
        else:
            # Such a file system may have no timeout of its own.
            reading = fs._cat_file(path, start=0 if end else None, end=end)
            data = await asyncio.wait_for(reading, _TIMEOUT_SECONDS)
    except StorageError:
        raise
    except FileNotFoundError:
        return _GONE
    except FileExistsError:
        return CHANGED
    except Exception as error:  # Each file system has errors of its own.
        return Unread(" ".join(str(error).split()) or type(error).__name__)
    if len(data) == size and (size < file.size or checksum_matches(data, file.checksum)):
        return data
    return Unread(f"{_DAMAGED}: {len(data)} of {size} bytes")

"""Open a folder on disk or in any store that fsspec supports; read and write small files in it.

What cannot be listed, read or written, here or in a store, raises a `StorageError`.
"""

import contextlib
import json
import logging
import os
import uuid
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

import fsspec
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractBufferedFile

from components.contract.artifact_files import link
from components.contract.errors import StorageError, UserError
from components.contract.printable import hide_login
from components.storage import object_store

CLOUD_STORAGE = ("gs://", "gcs://")
"""URL prefixes of Google Cloud Storage."""

LARGEST_POINTER = 1024
"""Bytes, which no file has that only stands for the real one."""
POINTER = "a pointer of Git LFS: run git lfs pull"
"""The reason why such a file is not used."""
_POINTER_START = b"version https://git-lfs.github.com/spec"

# A request to a bucket takes 30 ms, however small.
_REQUEST_BYTES = 8 * 2**20
# More would read what lies between the parts that are needed.
_DISK_BYTES = 2**14

# gcsfs logs every error with its traceback before it raises it.
logging.getLogger("gcsfs").setLevel(logging.CRITICAL)


def open_folder(folder: str) -> tuple[AbstractFileSystem, str]:
    """Return the file system of `folder`, a path or URL, and the path within it."""
    try:
        if folder.startswith(object_store.SCHEMES):
            fs, root = object_store.open_store(folder)
        elif folder.startswith(CLOUD_STORAGE):
            # Takes half a second to import.
            from components.storage.cloud_storage import open_cloud_storage

            fs, root = open_cloud_storage(folder)
        else:
            fs, root = fsspec.core.url_to_fs(folder)
    except (ImportError, ValueError) as error:
        raise StorageError(hide_login(f"Cannot open {folder}: {error}.")) from error
    return fs, root.rstrip("/")


def is_local(fs: AbstractFileSystem) -> bool:
    """Return whether `fs` is the local file system."""
    return isinstance(fs, LocalFileSystem)


def list_folders(folder: str) -> list[str]:
    """Return the names of the folders directly in `folder`; none when it does not exist.

    Links to folders count, even broken ones, as the newest of several folders may be one.
    """
    fs, root = open_folder(folder)
    with explaining_errors("list", folder):
        try:
            if is_local(fs):
                return sorted(entry.name for entry in os.scandir(root) if _may_be_folder(entry))
            entries = fs.ls(root, detail=True, refresh=True)
        except FileNotFoundError:
            if os.path.islink(root):
                raise
            return []
    folders = (entry["name"].rstrip("/") for entry in entries if entry["type"] == "directory")
    return sorted(name.rsplit("/", 1)[-1] for name in folders)


def _may_be_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir() or (entry.is_symlink() and not os.path.exists(entry.path))
    except PermissionError:
        return True


def is_file(url: str) -> bool:
    """Return whether there is a file at a path or URL."""
    fs, path = open_folder(url)
    if is_local(fs):
        return os.path.isfile(path)
    with explaining_errors("read", url):
        try:
            # `exists` would return False for any error.
            return str(fs.info(path)["type"]) == "file"
        except FileNotFoundError:
            return False


def read_bytes(url: str) -> bytes:
    """Read a small file at a path or URL."""
    fs, path = open_folder(url)
    with explaining_errors("read", url):
        if is_local(fs):
            _check_regular(path)
        data = bytes(fs.cat_file(path))
    if is_pointer(data):
        raise StorageError(f"{url} is {POINTER}.")
    return data


def is_pointer(data: bytes) -> bool:
    """Return whether the content is that of a file that stands for another one."""
    return len(data) < LARGEST_POINTER and data.startswith(_POINTER_START)


def _check_regular(path: str) -> None:
    """Raise `ValueError` for what would block, never end or be replaced: a pipe, a device."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError("it is not a regular file")


def write_json(url: str, content: Any) -> None:
    """Write a small JSON file, as `replace_file` does."""
    replace_file(url, json.dumps(content).encode())


def replace_file(url: str, content: bytes) -> None:
    """Write a small file, and create its folder, at a path or URL: completely or not at all."""
    fs, path = open_folder(url)
    with explaining_errors("write", url):
        if not is_local(fs):
            fs.pipe_file(path, content)  # Appears when it is complete.
            return
        path = os.path.realpath(path)
        _check_regular(path)
        unfinished = f"{path}.{uuid.uuid4().hex}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            with open(unfinished, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(unfinished)


@contextlib.contextmanager
def explaining_errors(task: str, url: str) -> Iterator[None]:
    """Turn any error but a `UserError` into a `StorageError`, as `storage_error` does."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # Each file system has errors of its own.
        raise storage_error(task, url, error) from error


def storage_error(task: str, url: str, error: Exception) -> StorageError:
    """Explain in one sentence why `task`, such as "list", fails for `url`."""
    explained = None
    if url.startswith(object_store.SCHEMES):
        explained = object_store.explain_error(url, error)
    elif url.startswith(CLOUD_STORAGE):
        from components.storage import cloud_storage

        explained = cloud_storage.explain_error(url, error)
    reason = reason_of(error)
    # Also of a temporary file beside it.
    if isinstance(error, OSError) and f"{error.filename}".startswith(os.path.abspath(url)):
        reason = error.strerror or reason
    return explained or StorageError(hide_login(f"Cannot {task} {url}: {reason}."))


def reason_of(error: Exception) -> str:
    """Return the first line of an error's text, without a period."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def share(source: str, target: str) -> None:
    """Make a copy of a file that will not change, without copying its bytes where possible."""
    if "://" in source:
        # Copied by the store itself.
        (fs, path), (_, copy) = open_folder(source), open_folder(target)
        fs.cp_file(path, copy)
        return
    link(source, target)


def open_stream(folder: str, path: str, size: int) -> BinaryIO:
    """Open a file of `size` bytes below `folder`, a path or URL, for reading."""
    fs, root = open_folder(folder)
    place = f"{root}/{path}"
    if not is_local(fs):
        return cast(BinaryIO, _RemoteFile(fs, place, block_size=_REQUEST_BYTES, size=size))
    with explaining_errors("read", f"{folder}/{path}"):
        # A pipe that has replaced the file would block forever.
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
        return open(descriptor, "rb", buffering=_DISK_BYTES)


class _RemoteFile(AbstractBufferedFile):
    def _fetch_range(self, start: int, end: int) -> bytes:
        with explaining_errors("read", self.path):
            return bytes(self.fs.cat_file(self.path, start=start, end=end))

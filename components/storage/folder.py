"""Finding files below a folder, on disk or in a store that fsspec knows, in one listing."""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Iterator
from typing import Any, NamedTuple

import fsspec
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem

from components.contract.errors import DataError, StorageError
from components.storage import object_store

CLOUD_STORAGE = ("gs://", "gcs://")
"""Begins the URLs of Google Cloud Storage."""

MISSING = "missing"
"""The version of what is named but is not there, such as a broken link."""

_LEFT_BY_SYSTEMS = frozenset({"Thumbs.db", "ehthumbs.db", "desktop.ini", "__MACOSX"})


class Found(NamedTuple):
    """One entry of a listing."""

    path: str
    """Relative to the folder, with "/" between its parts."""
    is_file: bool
    size: int
    """Bytes."""
    version: str
    """Changes when the content does: modification time in nanoseconds, or the store's own tag."""
    checksum: str
    """"crc32c:" or "md5:" and base64, where the listing has one; else empty."""


# It logs every error with its traceback before it raises it; what it raises is shown or listed.
logging.getLogger("gcsfs").setLevel(logging.CRITICAL)


def open_folder(folder: str) -> tuple[AbstractFileSystem, str]:
    """Return the file system of `folder`, a path or URL, and the path within it.

    Raises:
        StorageError: there is no such kind of file system, or its package is missing.
    """
    try:
        if folder.startswith(object_store.SCHEMES):
            fs, root = object_store.open_store(folder)
        elif folder.startswith(CLOUD_STORAGE):
            # It takes half a second to import.
            from components.storage.cloud_storage import open_cloud_storage

            fs, root = open_cloud_storage(folder)
        else:
            fs, root = fsspec.core.url_to_fs(folder)
    except (ImportError, ValueError) as error:
        raise StorageError(f"Cannot open {folder}: {error}.") from error
    return fs, root.rstrip("/")


def is_local(fs: AbstractFileSystem) -> bool:
    """Say whether `fs` is this machine's own file system."""
    return isinstance(fs, LocalFileSystem)


def find_files(folder: str) -> list[Found]:
    """List everything below `folder`, sorted by path.

    Raises:
        DataError: it does not exist, or is a file.
        StorageError: it cannot be listed.
    """
    fs, root = open_folder(folder)
    if not is_local(fs):
        return sorted(_find_remote(fs, root, folder))
    if not os.path.exists(root):
        raise DataError(f"{folder} does not exist: give a folder of label/image files.")
    if not os.path.isdir(root):
        raise DataError(f"{folder} is a file: give the folder above it, laid out as label/image.")
    return sorted(_find_local(root))


def find_file(path: str) -> Found | None:
    """Describe a file by its name in the folder that it lies in; None if `path` is a folder.

    Args:
        path: of this machine, or a URL.

    Raises:
        DataError: there is neither a file nor a folder of this name.
        StorageError: the store cannot be asked.
    """
    fs, place = open_folder(path)
    name = place.rsplit("/", 1)[-1]
    try:
        if is_local(fs):
            status = os.stat(path)
            is_file = stat.S_ISREG(status.st_mode)
            found = Found(name, is_file, status.st_size, str(status.st_mtime_ns), "")
            return None if stat.S_ISDIR(status.st_mode) else found
        fs.invalidate_cache()
        info = fs.info(place)
        return None if info["type"] == "directory" else _describe_object(name, info)
    except FileNotFoundError as error:
        raise DataError(f"There is no file or folder {path}.") from error
    except Exception as error:  # Each file system has errors of its own.
        raise storage_error("read", path, error) from error


def explain_ignored(entry: Found) -> str:
    """Return why an entry of an image folder is ignored, or "" if it may be an image."""
    parts = entry.path.split("/")
    if not entry.is_file:
        return "not a regular file"
    if any(part.startswith(".") for part in parts):
        return "hidden"
    return "left by the system" if not _LEFT_BY_SYSTEMS.isdisjoint(parts) else ""


def list_folders(folder: str) -> list[str]:
    """Return the names of the folders directly in `folder`; none when it does not exist.

    Raises:
        StorageError: it cannot be listed.
    """
    fs, root = open_folder(folder)
    try:
        entries = fs.ls(root, detail=True, refresh=True)
    except FileNotFoundError:
        return []
    except Exception as error:  # Each file system has errors of its own.
        raise storage_error("list", folder, error) from error
    folders = (entry["name"].rstrip("/") for entry in entries if entry["type"] == "directory")
    return sorted(name.rsplit("/", 1)[-1] for name in folders)


def is_file(url: str) -> bool:
    """Say whether there is a file at `url`, a path or URL.

    Raises:
        StorageError: this cannot be found out.
    """
    fs, path = open_folder(url)
    try:
        # Not `exists`, which takes any error for an absence.
        return str(fs.info(path)["type"]) == "file"
    except FileNotFoundError:
        return False
    except Exception as error:  # Each file system has errors of its own.
        raise storage_error("read", url, error) from error


def read_bytes(url: str) -> bytes:
    """Return what is in a small file, at a path or URL.

    Raises:
        StorageError: it cannot be read.
    """
    fs, path = open_folder(url)
    try:
        return bytes(fs.cat_file(path))
    except Exception as error:  # Each file system has errors of its own.
        raise storage_error("read", url, error) from error


def write_json(url: str, content: Any) -> None:
    """Write a small file of JSON at a path or URL, and the folder that it is in.

    Raises:
        StorageError: it cannot be written.
    """
    fs, path = open_folder(url)
    try:
        fs.makedirs(os.path.dirname(path), exist_ok=True)
        fs.pipe_file(path, json.dumps(content).encode())
    except Exception as error:  # Each file system has errors of its own.
        raise storage_error("write", url, error) from error


def storage_error(task: str, url: str, error: Exception) -> StorageError:
    """Say in one sentence that `task`, such as "list", cannot be done with `url`, and why."""
    if isinstance(error, StorageError):
        return error
    explained = None
    if url.startswith(object_store.SCHEMES):
        explained = object_store.explain_error(url, error)
    elif url.startswith(CLOUD_STORAGE):
        from components.storage import cloud_storage

        explained = cloud_storage.explain_error(url, error)
    return explained or StorageError(f"Cannot {task} {url}: {reason_of(error)}.")


def reason_of(error: Exception) -> str:
    """Return the first line of what a library says is wrong, without a full stop."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _find_remote(fs: AbstractFileSystem, root: str, folder: str) -> Iterator[Found]:
    """Yield the objects below `root`: one request for each page of the listing."""
    try:
        # A listing that fsspec remembers would hide what has changed since.
        fs.invalidate_cache()
        objects: dict[str, dict[str, Any]] = fs.find(root, detail=True)
    except Exception as error:  # Each file system has errors of its own.
        if isinstance(error, FileNotFoundError) and folder.startswith(CLOUD_STORAGE):
            bucket = root.partition("/")[0]
            raise StorageError(f"Cannot list {folder}: there is no bucket {bucket}.") from error
        raise storage_error("list", folder, error) from error
    for path, info in objects.items():
        yield _describe_object(path.removeprefix(root).removeprefix("/"), info)


def _describe_object(path: str, info: dict[str, Any]) -> Found:
    is_file = info["type"] == "file" and not path.endswith("/")
    version = info.get("generation") or info.get("etag") or info.get("ETag")
    version = version or info.get("mtime") or info.get("LastModified") or ""
    return Found(path, is_file, int(info["size"] or 0), str(version), _checksum(info))


def _checksum(info: dict[str, Any]) -> str:
    """Return the checksum that Cloud Storage gives with every object of a listing."""
    if crc32c := info.get("crc32c"):
        return f"crc32c:{crc32c}"
    return f"md5:{info['md5Hash']}" if info.get("md5Hash") else ""


_Folder = tuple[int, int]
"""What a folder is known by, whatever link leads to it: its device, and its number there."""


def _find_local(root: str) -> Iterator[Found]:
    """Yield what lies below `root`; follow links, but none that leads back to a folder above.

    fsspec's own walk follows no links and leaves out folders that it may not read. Folders are
    nested more deeply than functions can be.
    """
    unlisted: list[tuple[str, str, frozenset[_Folder]]] = [(root, "", frozenset())]
    while unlisted:
        folder, prefix, above = unlisted.pop()
        this, children = _list_local(folder)
        above |= {this}
        for entry in children:
            path = prefix + entry.name
            try:
                status = entry.stat()
            except OSError:
                # Broken links stay in the listing, so that ingest rejects them with their reason.
                yield Found(path, True, 0, MISSING, "")
                continue
            if not stat.S_ISDIR(status.st_mode):
                is_file = stat.S_ISREG(status.st_mode)
                yield Found(path, is_file, status.st_size, str(status.st_mtime_ns), "")
            elif _identify(status) in above:
                yield Found(path, False, 0, "", "")
            else:
                unlisted.append((entry.path, f"{path}/", above))


def _identify(status: os.stat_result) -> _Folder:
    return status.st_dev, status.st_ino


def _list_local(folder: str) -> tuple[_Folder, list[os.DirEntry[str]]]:
    try:
        with os.scandir(folder) as entries:
            return _identify(os.stat(folder)), list(entries)
    except OSError as error:
        raise StorageError(f"Cannot list {folder}: {error.strerror}.") from error

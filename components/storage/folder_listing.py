"""List all files of a folder, on disk or in any store, as they are before anything is read."""

import contextlib
import heapq
import os
import stat
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

from fsspec import AbstractFileSystem

from components.contract.error_messages import did_you_mean
from components.contract.errors import DataError, StorageError
from components.storage.folder import (
    CLOUD_STORAGE,
    explaining_errors,
    is_local,
    list_folders,
    open_folder,
)
from components.storage.row_table import RowSorter

MISSING = "missing"
"""Version of an entry without a file, such as a broken link."""

_IRREGULAR = "not a regular file"
_LINK_UP = "a link to a folder above the images"
LINK_AGAIN = "a link to a folder that is listed already"
"""Why a link is skipped: below a folder at the top, each folder is read once."""

_LEFT_BY_SYSTEMS = frozenset({"Thumbs.db", "ehthumbs.db", "desktop.ini", "__MACOSX"})


class Found(NamedTuple):
    """One entry of a listing."""

    path: str
    """Path relative to the folder, with "/" between its parts."""
    problem: str
    """Why it cannot be read; empty for a file."""
    size: int
    """Bytes."""
    version: str
    """Changes when the content does: `local_version`, or the store's own tag."""
    checksum: str
    """"crc32c:" and base64, or "etag:" and S3's; empty if the listing has none."""


def find_files(folder: str) -> Sequence[Found]:
    """List everything below `folder`, sorted by path; many entries stay on disk.

    Raises `DataError` if the folder does not exist or is a file, `StorageError` if it cannot be
    listed.
    """
    fs, root = open_folder(folder)
    if not is_local(fs):
        sorter = RowSorter(Found._make)
        _find_remote(fs, root, folder, sorter.add)
        return sorter.sorted()
    if not os.path.exists(root):
        parent, name = os.path.split(folder)
        similar = did_you_mean(name, list_folders(parent))
        raise DataError(f"{folder} does not exist: give a folder of label/image files.{similar}")
    if not os.path.isdir(root):
        raise DataError(f"{folder} is a file: give the folder above it, laid out as label/image.")
    return _find_local(root)


def find_file(path: str) -> Found | None:
    """Describe the file at a path or URL; None if it is a folder, `DataError` if it is neither."""
    fs, place = open_folder(path)
    name = place.rsplit("/", 1)[-1]
    with explaining_errors("read", path):
        try:
            if is_local(fs):
                status = os.stat(path)
                return None if stat.S_ISDIR(status.st_mode) else _describe_file(name, status)
            fs.invalidate_cache()
            info = fs.info(place)
        except FileNotFoundError as error:
            raise DataError(f"There is no file or folder {path}.") from error
    return None if info["type"] == "directory" else _describe_object(name, info)


def explain_ignored(entry: Found) -> str:
    """Return why an entry of an image folder is ignored, or "" if it may be an image."""
    if entry.problem:
        return entry.problem
    if entry.path.startswith(".") or "/." in entry.path:
        return "hidden"
    parts = entry.path.split("/")
    return "left by the system" if not _LEFT_BY_SYSTEMS.isdisjoint(parts) else ""


def _find_remote(
    fs: AbstractFileSystem, root: str, folder: str, take: Callable[[Found], None]
) -> None:
    """Call `take` with each object below `root`."""
    with explaining_errors("list", folder):
        try:
            # A cached listing would hide recent changes.
            fs.invalidate_cache()
            if hasattr(fs, "find_all"):
                below = f"{root.partition('/')[2]}/".lstrip("/")

                def take_object(info: dict[str, Any]) -> None:
                    path = info["name"].removeprefix(below)
                    take(_describe_object(path, {**info, "type": "file"}))

                fs.find_all(root, take_object)
                return
            objects: dict[str, dict[str, Any]] = fs.find(root, detail=True)
        except FileNotFoundError as error:
            if not folder.startswith(CLOUD_STORAGE):
                raise
            bucket = root.partition("/")[0]
            raise StorageError(f"Cannot list {folder}: there is no bucket {bucket}.") from error
    for path, info in objects.items():
        take(_describe_object(path.removeprefix(root).removeprefix("/"), info))


def _describe_object(path: str, info: dict[str, Any]) -> Found:
    is_file = info["type"] == "file" and not path.endswith("/")
    problem = "" if is_file else _IRREGULAR
    etag = info.get("etag") or info.get("ETag")
    version = info.get("generation") or etag or info.get("mtime") or info.get("LastModified") or ""
    checksums = {"crc32c": info.get("crc32c"), "etag": etag}
    checksum = next((f"{kind}:{value}" for kind, value in checksums.items() if value), "")
    return Found(path, problem, int(info["size"] or 0), str(version), checksum)


def _find_local(root: str) -> Sequence[Found]:
    """Find everything below `root`, and follow links.

    fsspec's own walk follows no links and leaves out unreadable folders.
    """
    real = Path(os.path.realpath(root))
    above = set()
    for folder in (real, *real.parents):
        with contextlib.suppress(PermissionError):
            above.add(_identify(folder))
    sorter = RowSorter(Found._make)
    for entry in _list_folder(root):
        if (file := _describe_entry(entry.name, entry)) is not None:
            sorter.add(file)
        else:
            _find_below(root, entry.name, above, sorter.add)
    return sorter.sorted()


def _find_below(
    root: str, top: str, above: Set[tuple[int, int]], take: Callable[[Found], None]
) -> None:
    """Call `take` with the files below a folder of `root`, in any order.

    Links that lead to each other have no end of paths, so each folder is read once: at its own
    path, or else at that of the first link.
    """
    read: set[tuple[int, int]] = set()
    folders, links = [top], list[str]()
    while folders or links:
        path = folders.pop() if folders else heapq.heappop(links)
        try:
            folder = _identify(f"{root}/{path}")
        except OSError:
            take(Found(path, "", 0, MISSING, ""))
            continue
        if folder in above or folder in read:
            take(Found(path, _LINK_UP if folder in above else LINK_AGAIN, 0, "", ""))
            continue
        read.add(folder)
        for entry in _list_folder(f"{root}/{path}"):
            below = f"{path}/{entry.name}"
            if (file := _describe_entry(below, entry)) is not None:
                take(file)
            elif entry.is_symlink():
                heapq.heappush(links, below)
            else:
                folders.append(below)


def _list_folder(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise StorageError(f"Cannot list {folder}: {error.strerror}.") from error


def _describe_entry(path: str, entry: os.DirEntry[str]) -> Found | None:
    """Describe a file; return None for a folder or a link to one.

    Broken links stay in the listing, so that ingest rejects them with a reason.
    """
    try:
        status = entry.stat()
    except OSError:
        return Found(path, "", 0, MISSING, "")
    return None if stat.S_ISDIR(status.st_mode) else _describe_file(path, status)


def _identify(folder: str | Path) -> tuple[int, int]:
    """Return what identifies a folder, whatever link leads to it."""
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _describe_file(path: str, status: os.stat_result) -> Found:
    problem = "" if stat.S_ISREG(status.st_mode) else _IRREGULAR
    return Found(path, problem, status.st_size, local_version(status), "")


def local_version(status: os.stat_result) -> str:
    """Return the times at which a local file's content and its name or owner last changed.

    Archives restore the first time, so files that are swapped differ only in the second.
    """
    return f"{status.st_mtime_ns} {status.st_ctime_ns}"

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

EXCLUDED = "excluded"
"""Why an entry is skipped that the caller of `find_files` leaves out."""
UNREADABLE = "no permission to read"
"""Why a folder is skipped, with all that is in it."""

_IRREGULAR = "not a regular file"
_LINK_UP = "a link to a folder above the images"
LINK_AGAIN = "a link to a folder that is listed already"
"""Why a link is skipped: below a folder at the top, each folder is read once."""

_LEFT_BY_SYSTEMS = frozenset(
    {
        *("thumbs.db", "ehthumbs.db", "ehthumbs_vista.db", "desktop.ini", "$recycle.bin"),
        *("found.000", "system volume information"),
        *("__macosx", "icon\r", "network trash folder", "temporary items"),
        *("lost+found", "lost.dir", "__pycache__"),
        # Network storage of Synology, QNAP and NetApp.
        *("@eadir", "@tmp", "@synoresource", "#recycle", "#snapshot"),
        *("@recycle", "@recently-snapshot", "~snapshot"),
    }
)
# Hadoop marks an empty folder of a bucket by a file of this name.
_FOLDER_MARKER = "_$folder$"
_OF_SYSTEM = "left by the system"

_OTHER_ENDINGS = (
    # About images, or beside them.
    *(".json", ".jsonl", ".ndjson", ".geojson", ".xml", ".xmp", ".yaml", ".yml", ".toml", ".ini"),
    *(".txt", ".csv", ".tsv", ".md", ".rst", ".log", ".html", ".htm", ".url", ".lnk", ".dvc"),
    *(".tfw", ".tifw", ".jgw", ".jpgw", ".pgw", ".pngw", ".gfw", ".bpw", ".wld", ".prj", ".ovr"),
    *(".aae", ".thm", ".lrv", ".pp3", ".dop", ".cos", ".on1", ".md5", ".sha1", ".sha256", ".crc"),
    # Documents, programs, data, archives and films.
    *(".pdf", ".doc", ".docx", ".xls", ".xlsx", ".ppt", ".pptx"),
    *(".py", ".ipynb", ".m", ".r", ".sh"),
    *(".npy", ".npz", ".mat", ".h5", ".hdf5", ".pkl", ".pickle", ".pt", ".pth", ".db", ".sqlite"),
    *(".parquet", ".arrow", ".feather", ".orc", ".avro", ".tfrecord"),
    *(".zip", ".tgz", ".tar.gz", ".7z", ".rar", ".mp4", ".avi", ".mov", ".mkv", ".webm", ".wmv"),
    *(".mp3", ".wav"),
)

# Keys of what changes with an object, as its store names it.
_VERSIONS = (
    *("generation", "etag", "ETag", "mtime", "LastModified", "last_modified"),
    # Zip, GitHub, Git, WebHDFS, FTP, SMB, HTTP, memory.
    *("CRC", "sha", "hex", "modificationTime", "modify", "last_write_time", "Last-Modified"),
    "created",
)

_IsExcluded = Callable[[str], bool] | None


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


def find_files(
    folder: str, is_excluded: _IsExcluded = None, *, is_lenient: bool = False
) -> Sequence[Found]:
    """List everything below `folder`, sorted by path; many entries stay on disk.

    Folders that are excluded by their path, and if the listing is lenient also those that a system
    has left or that are not readable, are one entry with a problem. A disk is not asked for what is
    in them.

    Raises `DataError` if the folder does not exist or is a file, `StorageError` if it cannot be
    listed.
    """
    fs, root = open_folder(folder)
    if is_local(fs):
        if not os.path.exists(root):
            parent, name = os.path.split(folder)
            similar = did_you_mean(name, list_folders(parent))
            raise DataError(
                f"{folder} does not exist: give a folder of label/image files.{similar}"
            )
        if not os.path.isdir(root):
            raise DataError(
                f"{folder} is a file: give the folder above it, laid out as label/image."
            )
        return _LocalFolder(root, is_excluded, is_lenient=is_lenient).find()
    sorter = RowSorter(Found)

    def take(entry: Found) -> None:
        excluded = is_excluded and not entry.problem and is_excluded(entry.path)
        sorter.add(entry._replace(problem=EXCLUDED) if excluded else entry)

    _find_remote(fs, root, folder, take)
    return sorter.sorted()


def find_file(path: str) -> Found | None:
    """Describe the file at a path or URL; None if it is a folder, `DataError` if it is neither."""
    fs, place = open_folder(path)
    name = place.rsplit("/", 1)[-1]
    with explaining_errors("read", path):
        try:
            if is_local(fs):
                status = os.stat(place or "/")
                return None if stat.S_ISDIR(status.st_mode) else _describe_file(name, status)
            fs.invalidate_cache()
            info = fs.info(place)
        except FileNotFoundError as error:
            raise DataError(f"There is no file or folder {path}.") from error
    return None if info["type"] == "directory" else _describe_object(name, info)


def explain_ignored(entry: Found) -> str:
    """Return why an entry of an image folder is ignored, or "" if it may be an image."""
    path = entry.path
    if path.startswith(".") or "/." in path:
        return "hidden"
    of_system = path.endswith(_FOLDER_MARKER) or not _LEFT_BY_SYSTEMS.isdisjoint(
        path.lower().split("/")
    )
    return _OF_SYSTEM if of_system else entry.problem


def explain_name(path: str) -> str:
    """Return why a file is no image by the end of its name, or "" if it may be one."""
    return "not an image by its name" if path.lower().endswith(_OTHER_ENDINGS) else ""


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
    # TensorFlow writes empty objects that stand for folders, this one among them.
    is_file = info["type"] == "file" and path != "" and not path.endswith("/")
    problem = "" if is_file else _IRREGULAR
    etag = info.get("etag") or info.get("ETag")
    version = next((info[key] for key in _VERSIONS if info.get(key)), "")
    checksums = {"crc32c": info.get("crc32c"), "etag": etag}
    checksum = next((f"{kind}:{value}" for kind, value in checksums.items() if value), "")
    return Found(path, problem, int(info["size"] or 0), str(version), checksum)


class _LocalFolder:
    """Finds everything below a folder on disk, and follows links.

    fsspec's own walk follows no links and leaves out unreadable folders.
    """

    def __init__(self, root: str, is_excluded: _IsExcluded, *, is_lenient: bool) -> None:
        """Find what is below `root`; `is_lenient` as in `find_files`."""
        self._root, self._is_excluded, self._is_lenient = root, is_excluded, is_lenient
        self._sorter = RowSorter(Found)

    def find(self) -> Sequence[Found]:
        """Return all entries, sorted."""
        real = Path(os.path.realpath(self._root))
        above = set()
        for folder in (real, *real.parents):
            with contextlib.suppress(PermissionError):
                above.add(_identify(folder))
        for entry in _list_folder(self._root):
            if (file := self._describe(entry.name, entry)) is not None:
                self._sorter.add(file)
            else:
                self._find_below(entry.name, above)
        return self._sorter.sorted()

    def _find_below(self, top: str, above: Set[tuple[int, int]]) -> None:
        """Add the files below a folder, in any order.

        Links that lead to each other have no end of paths, so each folder is read once: at its own
        path, or else at that of the first link.
        """
        read: set[tuple[int, int]] = set()
        folders, links, take, describe = [top], list[str](), self._sorter.add, self._describe
        while folders or links:
            path = folders.pop() if folders else heapq.heappop(links)
            try:
                folder = _identify(f"{self._root}/{path}")
            except OSError:
                take(Found(path, "", 0, MISSING, ""))
                continue
            if folder in above or folder in read:
                take(Found(path, _LINK_UP if folder in above else LINK_AGAIN, 0, "", ""))
                continue
            read.add(folder)
            for entry in self._list(path):
                below = f"{path}/{entry.name}"
                if (file := describe(below, entry)) is not None:
                    take(file)
                elif entry.is_symlink():
                    heapq.heappush(links, below)
                else:
                    folders.append(below)

    def _list(self, path: str) -> list[os.DirEntry[str]]:
        try:
            return _list_folder(f"{self._root}/{path}")
        except StorageError as error:
            if not self._is_lenient or not isinstance(error.__cause__, PermissionError):
                raise
            self._sorter.add(Found(path, UNREADABLE, 0, "", ""))
            return []

    def _describe(self, path: str, entry: os.DirEntry[str]) -> Found | None:
        """Describe a file, or a folder that is not to be read; return None for any other folder.

        Broken links stay in the listing, so that ingest rejects them with a reason.
        """
        if self._is_excluded and self._is_excluded(path):
            return Found(path, EXCLUDED, 0, "", "")
        try:
            status = entry.stat()
        except OSError as error:
            is_locked = self._is_lenient and isinstance(error, PermissionError)
            return Found(path, UNREADABLE if is_locked else "", 0, MISSING, "")
        if not stat.S_ISDIR(status.st_mode):
            return _describe_file(path, status)
        is_of_system = self._is_lenient and entry.name.lower() in _LEFT_BY_SYSTEMS
        return Found(path, _OF_SYSTEM, 0, "", "") if is_of_system else None


def _list_folder(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise StorageError(f"Cannot list {folder}: {error.strerror}.") from error


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

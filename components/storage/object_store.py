"""S3-like object stores, `s3://` and `minio://`, for fsspec and for TFX's own file access.

TensorFlow has no file system for them, so that TFX's `fileio` cannot use them either. Kubeflow
Pipelines names the objects of its own store `minio://bucket/key`.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import fsspec
from fsspec import AbstractFileSystem
from fsspec.utils import glob_translate
from tfx.dsl.io import filesystem, filesystem_registry

from components.contract.errors import UserError

SCHEMES = ("s3://", "minio://")

KUBEFLOW_ENDPOINT = "http://minio-service.kubeflow:9000"
"""The store of Kubeflow Pipelines, as its cluster names it."""

# With pauses of up to 7 s together, an address that drops every packet is given up within 27 s, a
# store that never answers within 67 s.
_CONNECTION = {
    "connect_timeout": 5,
    "read_timeout": 15,
    "retries": {"mode": "standard", "total_max_attempts": 4},
    "max_pool_connections": 64,
    # Kubeflow's MinIO is of 2019 and rejects uploads that carry the checksums of today.
    "request_checksum_calculation": "when_required",
    "response_checksum_validation": "when_required",
}

_DELETES_AT_ONCE = 64

_KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"

_Path = str | bytes


def find_endpoint(url: str) -> str | None:
    """Return the address of the store that holds `url`; None for AWS's own."""
    given = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return given or (KUBEFLOW_ENDPOINT if url.startswith("minio://") else None)


def open_store(url: str) -> tuple[AbstractFileSystem, str]:
    """Return s3fs for the store of `url`, and the path within it, `bucket/key`.

    Raises:
        ImportError: s3fs is missing.
    """
    options: dict[str, Any] = {"config_kwargs": _CONNECTION, "use_listings_cache": False}
    if endpoint := find_endpoint(url):
        options["endpoint_url"] = endpoint
    fs = fsspec.filesystem("s3", **options)
    # Its own attempts would multiply those above.
    fs.retries = 1
    return fs, url.partition("://")[2].rstrip("/")


def explain_error(url: str, error: Exception) -> UserError | None:
    """Say in one sentence what is wrong with the store of `url`; None for any other error."""
    # Importing botocore takes a good part of a second; here s3fs has done so.
    from botocore import exceptions  # type: ignore[import-untyped]

    store = f"the object store at {_without_login(find_endpoint(url))}"
    reason = " ".join(str(error).split()).rstrip(".")
    if isinstance(error, PermissionError):
        return UserError(f"Access to {url} in {store} was refused ({reason}): check {_KEYS}.")
    if _error_code(error) == "NoSuchBucket":
        bucket = url.partition("://")[2].partition("/")[0]
        return UserError(f"There is no bucket {bucket} in {store}: create it or correct its name.")
    if isinstance(
        error,
        exceptions.NoCredentialsError
        | exceptions.PartialCredentialsError
        | exceptions.CredentialRetrievalError,
    ):
        return UserError(f"There are no credentials for {store}: set {_KEYS}.")
    unreachable = isinstance(error, exceptions.ConnectionError | exceptions.HTTPClientError)
    if unreachable or reason.startswith("Invalid endpoint"):
        return UserError(
            f"Cannot reach {store} ({type(error).__name__}): check that it runs, or set "
            f"AWS_ENDPOINT_URL to its address, such as {KUBEFLOW_ENDPOINT}."
        )
    return None


def _without_login(endpoint: str | None) -> str:
    if endpoint is None:
        return "AWS"
    return endpoint.replace(f"{urlsplit(endpoint).netloc.rpartition('@')[0]}@", "", 1)


def _error_code(error: Exception) -> str:
    response = getattr(error.__cause__, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


@contextlib.contextmanager
def _store(url: str) -> Iterator[tuple[AbstractFileSystem, str]]:
    """Open the store of `url`, and turn errors of the block into TFX's or the user's."""
    try:
        yield open_store(url)
    except Exception as error:
        if said := explain_error(url, error):
            raise said from error
        if isinstance(error, FileNotFoundError):
            raise filesystem.NotFoundError(f"{url} does not exist.") from error
        raise


class _Upload(io.BytesIO):
    """Becomes an object when closed; none if its `with` block fails, so that none is half."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self.failed = False

    def __exit__(self, kind: Any, *details: Any) -> None:
        self.failed = self.failed or kind is not None
        self.close()

    def close(self) -> None:
        """Upload, once."""
        if self.closed:
            return
        data = self.getvalue()
        super().close()
        if not self.failed:
            with _store(self._url) as (fs, path):
                fs.pipe_file(path, data)


class _TextUpload(io.TextIOWrapper):
    """The same for text."""

    buffer: _Upload

    def __exit__(self, kind: Any, *details: Any) -> None:
        self.buffer.failed = kind is not None
        self.close()


class Statistics(NamedTuple):
    """What TFX asks `stat` for; the names are TensorFlow's."""

    length: int
    mtime_nsec: int
    is_directory: bool


def _text(path: _Path) -> str:
    return os.fsdecode(path).rstrip("/")


def _read(fs: AbstractFileSystem, path: str) -> bytes:
    """Read an object; once more if the connection breaks on the way."""
    from botocore import exceptions

    with contextlib.suppress(exceptions.HTTPClientError):
        return bytes(fs.cat_file(path))
    return bytes(fs.cat_file(path))


def _objects_below(fs: AbstractFileSystem, root: str) -> list[str]:
    """Return the paths of all objects below `root`, those that stand for folders among them."""
    return [path for path in fs.find(root) if path.startswith(f"{root}/")]


def _children(fs: AbstractFileSystem, root: str) -> tuple[list[str], list[str]]:
    """Return the names of the folders and of the objects directly in `root`."""
    folders: list[str] = []
    files: list[str] = []
    for entry in fs.ls(root, detail=True):
        if entry["name"] == root:
            raise NotADirectoryError(root)
        # An object named like the folder and a slash stands for the folder itself.
        if name := entry["name"][len(root) + 1 :]:
            (folders if entry["type"] == "directory" else files).append(name)
    return sorted(folders), sorted(files)


async def _delete(fs: AbstractFileSystem, paths: list[str]) -> None:
    """Delete objects, one by one: s3fs ignores the errors of S3's request for many.

    Nor does an old MinIO accept that one from a new botocore.
    """
    for start in range(0, len(paths), _DELETES_AT_ONCE):
        keys = (path.partition("/") for path in paths[start : start + _DELETES_AT_ONCE])
        await asyncio.gather(
            *(fs._call_s3("delete_object", Bucket=bucket, Key=key) for bucket, _, key in keys)
        )


class ObjectStoreFilesystem(filesystem.Filesystem):
    """File access as TFX wants it; a folder exists while there are objects below it."""

    SUPPORTED_SCHEMES = list(SCHEMES)

    @staticmethod
    def open(name: _Path, mode: str = "r") -> Any:
        """Return a file: one read at once, or written at once when it is closed."""
        url = _text(name)
        if mode not in {"r", "rb", "w", "wb"}:
            raise ValueError(f"An object store has no mode {mode!r} for {url}.")
        # Lines end as they are written, as in TensorFlow's files.
        if "w" in mode:
            upload = _Upload(url)
            return upload if mode == "wb" else _TextUpload(upload, "utf-8", newline="\n")
        with _store(url) as (fs, path):
            content = io.BytesIO(_read(fs, path))
        return content if mode == "rb" else io.TextIOWrapper(content, "utf-8", newline="\n")

    @staticmethod
    def copy(src: _Path, dst: _Path, overwrite: bool = False) -> None:
        """Copy an object, within a store without bringing it here."""
        source, target = _text(src), _text(dst)
        if not overwrite and ObjectStoreFilesystem.exists(target):
            raise OSError(f"{target} already exists, and overwrite is false.")
        if find_endpoint(source) == find_endpoint(target):
            ObjectStoreFilesystem.stat(source)
            with _store(target) as (fs, path):
                fs.cp_file(open_store(source)[1], path)
            return
        with (
            ObjectStoreFilesystem.open(source, "rb") as reader,
            ObjectStoreFilesystem.open(target, "wb") as writer,
        ):
            writer.write(reader.read())

    @staticmethod
    def exists(path: _Path) -> bool:
        """Say whether there is such an object or folder."""
        with _store(_text(path)) as (fs, name):
            try:
                fs.info(name)
            except FileNotFoundError:
                return False
        return True

    @staticmethod
    def glob(pattern: _Path) -> list[str]:
        """Return the objects and folders that match."""
        url = _text(pattern)
        scheme, _, wanted = url.partition("://")
        root = re.split(r"[*?\[]", wanted, maxsplit=1)[0].rpartition("/")[0]
        found: set[str] = set()
        # s3fs's own takes a folder that may not be listed for an empty one.
        with _store(url) as (fs, _), contextlib.suppress(FileNotFoundError):
            for path in (name.rstrip("/") for name in fs.find(root)):
                while path and path not in found:
                    found.add(path)
                    path = path.rpartition("/")[0]
        expression = re.compile(glob_translate(wanted))
        return sorted(f"{scheme}://{path}" for path in found if expression.match(path))

    @staticmethod
    def isdir(path: _Path) -> bool:
        """Say whether there are objects below `path`."""
        with _store(_text(path)) as (fs, root):
            bucket, _, key = root.partition("/")
            prefix = f"{key}/" if key else ""
            try:
                page = fs.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=1)
            except FileNotFoundError:
                return False
            return bool(page.get("Contents"))

    @staticmethod
    def listdir(path: _Path) -> list[str]:
        """Return the names in a folder."""
        with _store(_text(path)) as (fs, root):
            folders, files = _children(fs, root)
        return sorted({*folders, *files})

    @staticmethod
    def makedirs(path: _Path) -> None:
        """Do nothing: a folder comes with its first object."""

    @staticmethod
    def mkdir(path: _Path) -> None:
        """Do nothing: a folder comes with its first object."""

    @staticmethod
    def remove(path: _Path) -> None:
        """Delete an object."""
        if ObjectStoreFilesystem.stat(path).is_directory:
            raise IsADirectoryError(_text(path))
        with _store(_text(path)) as (fs, name):
            fsspec.asyn.sync(fs.loop, _delete, fs, [name])

    @staticmethod
    def rename(src: _Path, dst: _Path, overwrite: bool = False) -> None:
        """Move an object, or all those of a folder, one after the other."""
        source, target = _text(src), _text(dst)
        if not ObjectStoreFilesystem.stat(source).is_directory:
            ObjectStoreFilesystem.copy(source, target, overwrite)
            return ObjectStoreFilesystem.remove(source)
        if not overwrite and ObjectStoreFilesystem.exists(target):
            raise OSError(f"{target} already exists, and overwrite is false.")
        with _store(source) as (fs, root):
            names = [path[len(root) :] for path in _objects_below(fs, root)]
        for name in names:
            ObjectStoreFilesystem.copy(source + name, target + name, overwrite=True)
        return ObjectStoreFilesystem.rmtree(source)

    @staticmethod
    def rmtree(path: _Path) -> None:
        """Delete all objects below `path`."""
        with _store(_text(path)) as (fs, root):
            paths = _objects_below(fs, root)
            if not paths:
                raise FileNotFoundError(root)
            fsspec.asyn.sync(fs.loop, _delete, fs, paths)

    @staticmethod
    def stat(path: _Path) -> Statistics:
        """Return size and time of an object; a folder has neither."""
        with _store(_text(path)) as (fs, name):
            info = fs.info(name)
        if info["type"] == "directory":
            return Statistics(0, 0, True)
        return Statistics(info["size"], int(info["LastModified"].timestamp()) * 10**9, False)

    @staticmethod
    def walk(
        top: _Path, topdown: bool = True, onerror: Callable[..., None] | None = None
    ) -> Iterable[tuple[str, list[str], list[str]]]:
        """Yield each folder, the names of its folders and those of its objects."""
        url = _text(top)
        try:
            with _store(url) as (fs, root):
                folders, files = _children(fs, root)
        except OSError as error:
            if onerror:
                onerror(error)
            return
        if topdown:
            yield url, folders, files
        for folder in folders:
            yield from ObjectStoreFilesystem.walk(f"{url}/{folder}", topdown, onerror)
        if not topdown:
            yield url, folders, files


def register_object_stores() -> None:
    """Let TFX's `fileio` use `s3://` and `minio://`; a second time changes nothing."""
    # TensorFlow's claims s3:// with priority 10 and cannot serve it.
    filesystem_registry.DEFAULT_FILESYSTEM_REGISTRY.register(ObjectStoreFilesystem, priority=0)

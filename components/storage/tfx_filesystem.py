"""TFX's own file access, `fileio`, on `s3://` and `minio://`, which TensorFlow does not support.

fsspec lists, walks, reads and copies. The rest is our own where s3fs is unsafe: its `rm` and `mv`
take names such as `[x].jpg` for patterns and delete other objects; they ignore errors of S3's bulk
deletion, which an old MinIO refuses; it stores a file even if writing it failed.
`tests/storage/test_tfx_filesystem.py` has a case for each. `glob` is left out, as nothing calls it.
"""

import asyncio
import contextlib
import io
import os
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import fsspec
from fsspec import AbstractFileSystem
from tfx.dsl.io import fileio, filesystem, filesystem_registry

from components.storage.object_store import SCHEMES, explain_error, find_endpoint, open_store

_CONCURRENT_DELETES = 64

_Path = str | bytes


@contextlib.contextmanager
def _store(url: str) -> Iterator[tuple[AbstractFileSystem, str]]:
    """Open the store of `url`, and turn its errors into TFX's or the user's."""
    try:
        yield open_store(url)
    except Exception as error:
        if explained := explain_error(url, error):
            raise explained from error
        if isinstance(error, FileNotFoundError):
            raise filesystem.NotFoundError(f"{url} does not exist.") from error
        raise


class _Upload(io.BytesIO):
    """Becomes an object when closed, unless its `with` block has failed."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self.failed = False

    def __exit__(self, kind: Any, *details: Any) -> None:
        self.failed = self.failed or kind is not None
        self.close()

    def close(self) -> None:
        """Upload the content, once."""
        if self.closed:
            return
        data = self.getvalue()
        super().close()
        if not self.failed:
            with _store(self._url) as (fs, path):
                fs.pipe_file(path, data)


class _TextUpload(io.TextIOWrapper):
    """Text that becomes an object in the same way."""

    buffer: _Upload

    def __exit__(self, kind: Any, *details: Any) -> None:
        self.buffer.failed = kind is not None
        self.close()


def _text(path: _Path) -> str:
    return os.fsdecode(path).rstrip("/")


def _objects_below(fs: AbstractFileSystem, root: str) -> list[str]:
    """Return the paths of all objects below `root`, including markers of folders."""
    return [path for path in fs.find(root) if path.startswith(f"{root}/")]


def _delete(fs: AbstractFileSystem, paths: list[str]) -> None:
    """Delete objects with one request each."""

    async def delete_all() -> None:
        for start in range(0, len(paths), _CONCURRENT_DELETES):
            some = paths[start : start + _CONCURRENT_DELETES]
            await asyncio.gather(*(fs.delete_version(path, "") for path in some))

    fsspec.asyn.sync(fs.loop, delete_all)


class ObjectStoreFilesystem(filesystem.Filesystem):
    """File access for TFX; a folder exists while there are objects below it."""

    SUPPORTED_SCHEMES = list(SCHEMES)

    @staticmethod
    def open(name: _Path, mode: str = "r") -> Any:
        """Open a file that is read now, or written when closed, as a whole."""
        url = _text(name)
        if mode not in {"r", "rb", "w", "wb"}:
            raise ValueError(f"An object store has no mode {mode!r} for {url}.")
        # Line ends stay as they are, as in TensorFlow's files.
        if "w" in mode:
            upload = _Upload(url)
            return upload if mode == "wb" else _TextUpload(upload, "utf-8", newline="\n")
        with _store(url) as (fs, path):
            content = io.BytesIO(fs.cat_file(path))
        return content if mode == "rb" else io.TextIOWrapper(content, "utf-8", newline="\n")

    @staticmethod
    def copy(src: _Path, dst: _Path, overwrite: bool = False) -> None:
        """Copy an object; within a store, without downloading it."""
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
        """Return whether there is such an object or folder."""
        # fsspec's `exists` returns False for an unreachable bucket.
        with _store(_text(path)) as (fs, name), contextlib.suppress(FileNotFoundError):
            return bool(fs.info(name))
        return False

    @staticmethod
    def isdir(path: _Path) -> bool:
        """Return whether there are objects below `path`."""
        with _store(_text(path)) as (fs, root):
            return bool(fs.isdir(root))

    @staticmethod
    def listdir(path: _Path) -> list[str]:
        """Return the names in a folder."""
        with _store(_text(path)) as (fs, root):
            paths = [found.rstrip("/") for found in fs.ls(root, detail=False)]
            if paths == [root] and not fs.isdir(root):
                raise NotADirectoryError(_text(path))
        # An object named like the folder, with a slash, marks the folder itself.
        return sorted({found.rpartition("/")[2] for found in paths if found != root})

    @staticmethod
    def makedirs(path: _Path) -> None:
        """Do nothing: a folder exists once it has an object."""

    mkdir = makedirs

    @staticmethod
    def remove(path: _Path) -> None:
        """Delete an object."""
        if ObjectStoreFilesystem.stat(path).is_directory:
            raise IsADirectoryError(_text(path))
        with _store(_text(path)) as (fs, name):
            _delete(fs, [name])

    @staticmethod
    def rename(src: _Path, dst: _Path, overwrite: bool = False) -> None:
        """Move an object, or all objects of a folder one by one."""
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
            _delete(fs, paths)

    @staticmethod
    def stat(path: _Path) -> Any:
        """Return the size and time of an object, with TensorFlow's names; a folder has neither."""
        with _store(_text(path)) as (fs, name):
            info = fs.info(name)
        if info["type"] == "directory":
            return SimpleNamespace(length=0, mtime_nsec=0, is_directory=True)
        modified = int(info["LastModified"].timestamp()) * 10**9
        return SimpleNamespace(length=info["size"], mtime_nsec=modified, is_directory=False)

    @staticmethod
    def walk(
        top: _Path, topdown: bool = True, onerror: Callable[..., None] | None = None
    ) -> Iterable[tuple[str, list[str], list[str]]]:
        """Yield each folder with the names of its folders and objects."""
        url = _text(top)

        def report(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                raise error
            if onerror:
                onerror(error)

        with _store(url) as (fs, root):
            for path, folders, files in fs.walk(root, topdown=topdown, on_error=report):
                yield url + path[len(root) :], sorted(folders), sorted(filter(None, files))


def register_object_stores() -> None:
    """Register `s3://` and `minio://` with TFX's `fileio`; calling it again changes nothing."""
    # TensorFlow's file system claims s3:// with priority 10, but cannot serve it.
    filesystem_registry.DEFAULT_FILESYSTEM_REGISTRY.register(ObjectStoreFilesystem, priority=0)


def write_text(text: str, uri: str, name: str) -> None:
    """Write a text artifact: to `uri` on Kubeflow, to the file `name` in that folder locally."""
    path = _text_path(uri, name)
    fileio.makedirs(os.path.dirname(path))
    with fileio.open(path, "w") as file:
        file.write(text)


def read_text(uri: str, name: str) -> str:
    """Read what `write_text` has written."""
    with fileio.open(_text_path(uri, name)) as file:
        return str(file.read())


def _text_path(uri: str, name: str) -> str:
    register_object_stores()
    return os.path.join(uri, name) if fileio.isdir(uri) else uri

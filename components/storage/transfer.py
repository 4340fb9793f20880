"""Copy and remove files and folders, on disk and in any store."""

import contextlib
import os
import shutil
from typing import Any

from components.contract.artifact_files import on_disk
from components.contract.errors import StorageError
from components.contract.printable import make_printable
from components.storage.folder import (
    explaining_errors,
    is_local,
    open_folder,
    read_bytes,
    replace_file,
)
from components.storage.folder_listing import MISSING, find_files


def copy_folder(source: str, target: str) -> None:
    """Copy all files of a folder but broken links, such as editors make to lock a file.

    Objects that stand for folders, which TensorFlow writes to Cloud Storage, are no files.

    Raises:
        StorageError: an entry cannot be copied.
    """
    for file in find_files(source):
        place = os.path.join(source, file.path)
        if not file.path or file.path.endswith("/"):
            continue
        if file.problem:
            raise StorageError(f"Cannot copy {make_printable(place)}: {file.problem}.")
        if file.version != MISSING:
            copy_file(place, os.path.join(target, file.path))


def copy_file(source: str, target: str) -> None:
    """Copy a file; in a store, and from one, through memory."""
    if on_disk(source) and on_disk(target):
        with explaining_errors("write", target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(source, target)
    else:
        replace_file(target, read_bytes(source))


def remove_folder(folder: str) -> None:
    """Remove a folder with all that is in it, if there is one."""
    if on_disk(folder):
        if os.path.exists(folder):
            shutil.rmtree(folder)
        return
    fs, path = open_folder(folder)
    for file in find_files(folder):
        # Of the exact name: an object that stands for a folder ends with a slash.
        _remove(fs, f"{path.rstrip('/')}/{file.path}", url=f"{folder.rstrip('/')}/{file.path}")


def remove_file(url: str) -> None:
    """Remove a file, if there is one."""
    fs, path = open_folder(url)
    _remove(fs, path, url=url)


def _remove(fs: Any, path: str, *, url: str) -> None:
    # One request each: s3fs takes other names for patterns, and an old MinIO refuses to remove
    # many at a time.
    with explaining_errors("remove", url), contextlib.suppress(FileNotFoundError):
        if is_local(fs):
            os.remove(path)
        else:
            fs.rm_file(path)

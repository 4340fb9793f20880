"""Read a file from start to end, or by offset, from disk or from any store, never whole."""

import io
import os
from typing import Any, BinaryIO, cast

from fsspec import AbstractFileSystem

from components.storage.folder import explaining_errors, is_local, open_folder

# A request to a bucket takes 30 ms, however small.
_REQUEST_BYTES = 8 * 2**20
# More would read what lies between the parts that are needed.
_DISK_BYTES = 2**14


def open_stream(folder: str, path: str, size: int) -> BinaryIO:
    """Open a file of `size` bytes below `folder`, a path or URL, for reading.

    Raises:
        StorageError: the file cannot be opened; also later, when its store does not respond.
    """
    fs, root = open_folder(folder)
    place = f"{root}/{path}"
    if not is_local(fs):
        return cast(BinaryIO, io.BufferedReader(_Ranges(fs, place, size), _REQUEST_BYTES))
    with explaining_errors("read", f"{folder}/{path}"):
        # A pipe that has replaced the file would block forever.
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
        return open(descriptor, "rb", buffering=_DISK_BYTES)


class _Ranges(io.RawIOBase):
    """A remote file, of which each read is a request."""

    def __init__(self, fs: AbstractFileSystem, path: str, size: int) -> None:
        self._fs, self._path, self._size, self._position = fs, path, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        end = min(self._position + len(buffer), self._size)
        if end <= self._position:
            return 0
        with explaining_errors("read", self._path):
            data = self._fs.cat_file(self._path, start=self._position, end=end)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

"""Buckets and their objects, in memory or in local folders."""

import mimetypes
import os
import re
import stat
import time
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from hashlib import md5
from pathlib import Path
from typing import Any
from urllib.parse import quote

import google_crc32c

Json = dict[str, Any]

PAGE = 1000
BYTE_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


class ApiError(Exception):
    """A request to answer with this HTTP status and message."""


def crc32c(data: bytes) -> str:
    """Return a checksum in Google's format."""
    return b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()


def _hashes(data: bytes) -> dict[str, str]:
    return {"crc32c": crc32c(data), "md5": b64encode(md5(data).digest()).decode()}


@cache
def _file_hashes(path: Path, mtime_ns: int, size: int) -> dict[str, str]:
    return _hashes(path.read_bytes())


@dataclass(frozen=True)
class Item:
    """One generation of an object; the generation is the time of writing in nanoseconds."""

    bucket: str
    name: str
    data: bytes | Path
    size: int
    generation: int
    properties: Json

    def read(self, start: int = 0, stop: int | None = None) -> bytes:
        """Return the content from `start` to before `stop`."""
        if isinstance(self.data, bytes):
            return self.data[start:stop]
        with self.data.open("rb") as file:
            file.seek(start)
            return file.read((self.size if stop is None else stop) - start)

    def span(self, header: str) -> tuple[int, int] | None:
        """Return start and end of a Range header, or None for the whole object."""
        match = BYTE_RANGE.fullmatch(header)
        if not match or match[0] == "bytes=-":
            return None
        first, last = match.groups()
        start = int(first) if first else max(self.size - int(last), 0)
        stop = min(int(last) + 1, self.size) if first and last else self.size
        if start >= stop:
            raise ApiError(416, "Request range not satisfiable")
        return start, stop

    @cached_property
    def hashes(self) -> dict[str, str]:
        """The checksums in Google's format."""
        if isinstance(self.data, bytes):
            return _hashes(self.data)
        return _file_hashes(self.data, self.generation, self.size)

    def headers(self) -> dict[str, str]:
        """Return the headers of a download."""
        return {
            "Content-Type": self.properties["contentType"],
            "ETag": f"{self.generation:x}",
            "x-goog-generation": str(self.generation),
            "x-goog-metageneration": "1",
            "x-goog-hash": ",".join(f"{key}={value}" for key, value in self.hashes.items()),
            "x-goog-stored-content-length": str(self.size),
        }

    def resource(self, endpoint: str) -> Json:
        """Return the JSON that describes the object."""
        path = f"storage/v1/b/{self.bucket}/o/{quote(self.name, safe='')}"
        updated = datetime.fromtimestamp(self.generation / 1e9, UTC)
        timestamp = updated.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return self.properties | {
            "kind": "storage#object",
            "id": f"{self.bucket}/{self.name}/{self.generation}",
            "selfLink": f"{endpoint}/{path}",
            "mediaLink": f"{endpoint}/download/{path}?generation={self.generation}&alt=media",
            "name": self.name,
            "bucket": self.bucket,
            "generation": str(self.generation),
            "metageneration": "1",
            "storageClass": "STANDARD",
            "size": str(self.size),
            "md5Hash": self.hashes["md5"],
            "crc32c": self.hashes["crc32c"],
            "etag": f"{self.generation:x}",
            "timeCreated": timestamp,
            "updated": timestamp,
        }


class Bucket:
    """Objects in memory."""

    def __init__(self, name: str) -> None:
        """Start empty."""
        self.name = name
        self._items: dict[str, Item] = {}
        self._listings: dict[str, list[str]] = {}

    def get(self, name: str) -> Item | None:
        """Return an object, or None."""
        return self._items.get(name)

    def put(self, name: str, data: bytes, properties: Json) -> None:
        """Write an object."""
        self._items[name] = Item(self.name, name, data, len(data), time.time_ns(), properties)

    def delete(self, name: str) -> None:
        """Remove an object."""
        del self._items[name]

    def names(self) -> list[str]:
        """Return the names of all objects in the order of their first write."""
        return list(self._names(""))

    def item(self, name: str, generation: str | None = None) -> Item:
        """Return an object, in the given generation if any; raise if it does not exist."""
        item = self.get(name)
        if item is None or generation not in (None, str(item.generation)):
            raise ApiError(404, f"No such object: {self.name}/{name}")
        return item

    def check(self, name: str, query: Mapping[str, str]) -> None:
        """Raise unless an object has the expected generation; 0 means no object."""
        item = self.get(name)
        current = str(item.generation if item else 0)
        if query.get("ifGenerationMatch", current) != current:
            raise ApiError(412, "At least one of the pre-conditions you specified did not hold.")

    def page(self, query: Mapping[str, str]) -> tuple[list[Item], list[str], str]:
        """Return the objects and prefixes of a listing, and the token of the next page."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        limit = max(1, min(int(query.get("maxResults", PAGE)), PAGE))
        # The last entry of the previous page.
        last = os.fsdecode(urlsafe_b64decode(query.get("pageToken", "")))
        items: list[Item] = []
        prefixes: list[str] = []
        for name in self._listing(query, prefix, last):
            end = name.find(delimiter, len(prefix)) if delimiter else -1
            key = name if end < 0 else name[: end + len(delimiter)]
            if key <= last:  # Another name below a listed prefix.
                continue
            if len(items) + len(prefixes) == limit:
                return items, prefixes, urlsafe_b64encode(os.fsencode(last)).decode()
            last = key
            if end >= 0:
                prefixes.append(key)
            elif item := self.get(name):
                items.append(item)
        return items, prefixes, ""

    def _listing(self, query: Mapping[str, str], prefix: str, last: str) -> list[str]:
        """Return the sorted names after `last`; all pages share the first page's view."""
        if not last or prefix not in self._listings:
            # Strings compare by code point, which is the order of their UTF-8 bytes.
            self._listings[prefix] = sorted(n for n in self._names(prefix) if n.startswith(prefix))
        names = self._listings[prefix]
        begin = bisect_left(names, query.get("startOffset", ""))
        end = bisect_left(names, query["endOffset"]) if "endOffset" in query else None
        return names[max(begin, bisect_right(names, last)) : end]

    def _names(self, prefix: str) -> Iterable[str]:
        return list(self._items)


class FolderBucket(Bucket):
    """The files of a local folder, read again for each request."""

    def __init__(self, name: str, folder: str | Path) -> None:
        """Serve the files in `folder`."""
        super().__init__(name)
        self._folder = Path(folder)

    def get(self, name: str) -> Item | None:
        """Return a file as it is now, or None."""
        try:
            path = self._path(name)
            info = path.stat()
        except (OSError, ValueError):
            return None
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        properties = {"contentType": kind}
        item = Item(self.name, name, path, info.st_size, info.st_mtime_ns, properties)
        return item if stat.S_ISREG(info.st_mode) else None

    def put(self, name: str, data: bytes, properties: Json) -> None:
        """Write a file; its properties are dropped."""
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        # The file system's clock may not advance between two writes.
        os.utime(path, ns=(now := time.time_ns(), now))

    def delete(self, name: str) -> None:
        """Remove a file."""
        self._path(name).unlink()

    def _path(self, name: str) -> Path:
        """Return the path of an object, never outside of the folder."""
        name.encode()  # Fails for names that are not UTF-8.
        if any(part in ("", ".", "..") for part in name.split("/")):
            raise ValueError(f"{name!r} cannot be the name of a file")
        return self._folder / name

    def _names(self, prefix: str) -> Iterator[str]:
        below = prefix.rpartition("/")[0]
        with suppress(ValueError):  # No file has a prefix like "../".
            for folder, _, files in os.walk(self._path(below) if below else self._folder):
                base = os.path.relpath(folder, self._folder)
                yield from files if base == "." else (f"{base}/{file}" for file in files)

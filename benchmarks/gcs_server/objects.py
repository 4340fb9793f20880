"""Buckets and their objects, in memory."""

import mimetypes
import re
import time
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
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


@dataclass(frozen=True)
class Item:
    """One generation of an object; the generation is the time of writing in nanoseconds."""

    bucket: str
    name: str
    data: bytes
    generation: int
    properties: Json

    def span(self, header: str) -> tuple[int, int] | None:
        """Return start and end of a Range header, or None for the whole object."""
        match = BYTE_RANGE.fullmatch(header)
        if not match or match[0] == "bytes=-":
            return None
        first, last = match.groups()
        size = len(self.data)
        start = int(first) if first else max(size - int(last), 0)
        stop = min(int(last) + 1, size) if first and last else size
        if start >= stop:
            raise ApiError(416, "Request range not satisfiable")
        return start, stop

    @cached_property
    def hashes(self) -> dict[str, str]:
        """The checksums in Google's format."""
        return {"crc32c": crc32c(self.data), "md5": b64encode(md5(self.data).digest()).decode()}

    def headers(self) -> dict[str, str]:
        """Return the headers of a download."""
        return {
            "Content-Type": self.properties["contentType"],
            "ETag": f'"{self.generation:x}"',
            "x-goog-generation": str(self.generation),
            "x-goog-metageneration": "1",
            "x-goog-hash": ",".join(f"{key}={value}" for key, value in self.hashes.items()),
            "x-goog-stored-content-length": str(len(self.data)),
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
            "size": str(len(self.data)),
            "md5Hash": self.hashes["md5"],
            "crc32c": self.hashes["crc32c"],
            "etag": f"{self.generation:x}",
            "timeCreated": timestamp,
            "updated": timestamp,
        }


class Bucket:
    """Objects in memory, which may be copied to a local folder as they are written."""

    def __init__(self, name: str, folder: str | Path | None = None) -> None:
        """Start with the files of a folder, or empty."""
        self.name, self._folder = name, Path(folder) if folder else None
        self._items: dict[str, Item] = {}
        for path in sorted(self._folder.rglob("*")) if self._folder else ():
            if path.is_file():
                file = str(path.relative_to(self._folder or ""))
                kind = mimetypes.guess_type(file)[0] or "application/octet-stream"
                self._keep(file, path.read_bytes(), {"contentType": kind})

    def _keep(self, name: str, data: bytes, properties: Json) -> None:
        self._items[name] = Item(self.name, name, data, time.time_ns(), properties)

    def put(self, name: str, data: bytes, properties: Json) -> None:
        """Write an object."""
        self._keep(name, data, properties)
        # TensorFlow marks folders by empty objects whose names end with a slash.
        if self._folder and not name.endswith("/"):
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def delete(self, name: str) -> None:
        """Remove an object."""
        del self._items[name]
        if self._folder and not name.endswith("/"):
            (self._folder / name).unlink()

    def names(self) -> list[str]:
        """Return the names of all objects in the order of their first write."""
        return list(self._items)

    def item(self, name: str, generation: str | None = None) -> Item:
        """Return an object, in the given generation if any; raise if it does not exist."""
        item = self._items.get(name)
        if item is None or generation not in (None, str(item.generation)):
            raise ApiError(404, f"No such object: {self.name}/{name}")
        return item

    def check(self, name: str, query: Mapping[str, str]) -> None:
        """Raise unless an object has the expected generation; 0 means no object."""
        current = str(self._items[name].generation if name in self._items else 0)
        if query.get("ifGenerationMatch", current) != current:
            raise ApiError(412, "At least one of the pre-conditions you specified did not hold.")

    def page(self, query: Mapping[str, str]) -> tuple[list[Item], list[str], str]:
        """Return the objects and prefixes of a listing, and the token of the next page."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        limit = max(1, min(int(query.get("maxResults", PAGE)), PAGE))
        # The last entry of the previous page.
        last = urlsafe_b64decode(query.get("pageToken", "")).decode()
        items: list[Item] = []
        prefixes: list[str] = []
        # Strings compare by code point, which is the order of their UTF-8 bytes.
        for name in sorted(name for name in self._items if name.startswith(prefix)):
            end = name.find(delimiter, len(prefix)) if delimiter else -1
            key = name if end < 0 else name[: end + len(delimiter)]
            if key <= last:  # Another name below a listed prefix.
                continue
            if len(items) + len(prefixes) == limit:
                return items, prefixes, urlsafe_b64encode(last.encode()).decode()
            last = key
            if end >= 0:
                prefixes.append(key)
            else:
                items.append(self._items[name])
        return items, prefixes, ""

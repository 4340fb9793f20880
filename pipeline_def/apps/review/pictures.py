"""Pictures for the page: reduced to JPEG by a few threads, from files that nobody has changed."""

import asyncio
import contextlib
import functools
import hashlib
import itertools
import logging
import threading
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from components.contract.errors import StorageError
from components.contract.example import ENCODED, FILENAME, LABEL, SHA256
from components.images.check_result import Rejected
from components.images.jpeg_check import MOST_SCANS_STORED, check_scans
from components.images.jpeg_frame import START
from components.images.thumbnails import make_thumbnail
from components.records.shard_files import list_shards, read_index
from components.records.tfrecord import read_features
from components.report.source_pictures import read_files
from components.storage.folder import open_folder
from pipeline_def.apps.serve.limits import RequestError

SIDES = {"large": 1000, "small": 160}
"""Name → longest side, pixels. Above 1,000, JPEGs of 12 million pixels are decoded in full, which
takes three times as long as at half their size."""

# A decoder may take 320 MB for an image of 40 million pixels.
_THREADS = 2
# Pictures; a large one has about 150 KB.
_CACHED = 256
_KEYS = tuple(key.encode() for key in (FILENAME, SHA256, LABEL))


class Record(NamedTuple):
    """Where an image is in the shards, and what the record says about it."""

    sha256: str
    label: str
    shard: str
    position: int


class Records:
    """Finds images in the shards of a run by their paths; reads the shards once, when needed."""

    def __init__(self, examples: str, paths: Collection[str]) -> None:
        """Look for `paths` in an Examples artifact, a path or URL; it may be gone."""
        self._examples, self._paths = examples, frozenset(paths)
        self._records: dict[str, Record] | None = None
        self._lock = threading.Lock()

    def find(self, path: str) -> Record | None:
        """Return the record of an image; None if the shards do not have it, or are gone."""
        with self._lock:
            if self._records is None:
                self._records = {}
                # What was found before a damaged shard can still be shown.
                with contextlib.suppress(OSError, StorageError, ValueError):
                    self._records.update(self._scan())
        return self._records.get(path)

    def read(self, path: str) -> bytes | None:
        """Return the image file as ingest stored it; None as in `find`."""
        record = self.find(path)
        if record is None:
            return None
        try:
            rows = read_features(record.shard, (ENCODED.encode(),))
            row = next(itertools.islice(rows, record.position, None))
            return bytes(row[ENCODED.encode()])
        except (OSError, StorageError, StopIteration, LookupError):
            return None

    def _scan(self) -> Iterable[tuple[str, Record]]:
        for split in read_index(self._examples)["splits"]:
            for shard in list_shards(self._examples, split):
                for position, row in enumerate(read_features(shard, _KEYS)):
                    path, digest, label = (
                        bytes(row[key]).decode(errors="backslashreplace") for key in _KEYS
                    )
                    if path in self._paths:
                        yield path, Record(digest, label, shard, position)


class Pictures:
    """Shows images by their digests. It knows all of them; nothing else can be asked for."""

    def __init__(self, folder: str, paths: Mapping[str, str], records: Records) -> None:
        """Prepare threads.

        Args:
            folder: ingested folder, a path or URL.
            paths: digest → path below it.
            records: where images that have gone from the folder are found.
        """
        self._folder, self._records = folder, records
        self._paths = dict(paths)
        self._threads = ThreadPoolExecutor(_THREADS, "picture")
        self._show = functools.lru_cache(_CACHED)(self._make)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def show(self, digest: str, side: int) -> bytes:
        """Return a JPEG of at most `side` pixels on the longer side.

        Raises:
            RequestError: the image is unknown, has gone or changed, or cannot be decoded.
        """
        if digest not in self._paths:
            raise RequestError(404, "This image is not part of the review.")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._show, digest, side)

    async def find_neighbors(self, paths: tuple[str, ...]) -> list[dict[str, str]]:
        """Return path, digest and label of images; the last two are "" where they are unknown."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._find_neighbors, paths)

    def _find_neighbors(self, paths: tuple[str, ...]) -> list[dict[str, str]]:
        images = []
        for path in paths:
            record = self._records.find(path)
            digest, label = (record.sha256, record.label) if record else ("", "")
            if digest:
                self._paths.setdefault(digest, path)
            images.append({"path": path, "sha256": digest, "label": label})
        return images

    def _make(self, digest: str, side: int) -> bytes:
        data = self._read(digest)
        try:
            if data.startswith(START):
                check_scans(data, MOST_SCANS_STORED)
            picture = make_thumbnail(data, side=side)
        except Rejected:
            picture = None
        if picture is None:
            raise RequestError(
                422, "The image cannot be decoded, or has too many pixels to be shown."
            )
        return picture.jpeg

    def _read(self, digest: str) -> bytes:
        path = self._paths[digest]
        if data := self._read_source(path):
            if hashlib.sha256(data).hexdigest() == digest:
                return data
            state = "has changed since the run"
        else:
            state = "is gone or cannot be read"
        record = self._records.find(path)
        if record and record.sha256 == digest and (stored := self._records.read(path)):
            return stored
        raise RequestError(404, f"The file {state}, and the run's own copy is gone.")

    def _read_source(self, path: str) -> bytes | None:
        try:
            [data] = read_files(*open_folder(self._folder), [path])
        except Exception as error:  # Each file system has errors of its own.
            logging.debug("Cannot read %s in %s: %s", path, self._folder, error)
            return None
        return data

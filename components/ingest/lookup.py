"""Find the span and the listing of a folder of images; imports neither TensorFlow nor TFX.

The listing travels in a file. Buckets change all the time, so one listing decides both whether a
cached result is valid and what is read; files that changed since are rejected one by one.
"""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from components.contract.configuration import from_json
from components.contract.errors import StorageError
from components.contract.properties import LookupInput
from components.ingest.config import IngestConfig
from components.ingest.labels import check_labels
from components.ingest.listing import ImageFile, Listing, Skipped, list_images
from components.ingest.spans import find_span
from components.storage.fetch import Unread, read_files
from components.storage.folder import explaining_errors, is_local, open_folder, reason_of
from components.storage.folder_listing import digest

LISTING_PROPERTY = "listing"
"""Execution property: the file in which the driver leaves the listing for the executor."""

_SUFFIX = ".jsonl.gz"
_MOST_KEPT = 10
# Files that a thread reads in one go.
_PART = 256


def look_up(inputs: Mapping[str, LookupInput], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of TFX's driver of FileBasedExampleGen, and the listing's file."""
    config = from_json(IngestConfig, properties["config"])
    found = find_span(properties["input_base"], config.span)
    listings = properties["listings"]
    listing = list_images(found.folder, config)
    check_labels(listing)
    if config.fingerprint == "content":
        listing = _add_checksums(listing, config)
    return {
        "span": found.span,
        "version": found.version,
        "input_fingerprint": listing.fingerprint(),
        LISTING_PROPERTY: write_listing(listing, listings) if listings else "",
    }


def _add_checksums(listing: Listing, config: IngestConfig) -> Listing:
    """Read the files that are listed without a checksum, and add it."""

    def add(files: Sequence[ImageFile]) -> list[ImageFile]:
        return [
            file
            if isinstance(content, Unread)
            else file._replace(checksum=f"md5:{digest(content, 'md5')}")
            for file, content in read_files(listing.root, files, config)
        ]

    unknown = [file for file in listing.files if not file.checksum]
    parts = [unknown[start : start + _PART] for start in range(0, len(unknown), _PART)]
    with ThreadPoolExecutor(config.workers) as pool:
        added = itertools.chain.from_iterable(pool.map(add, parts))
        known = (file for file in listing.files if file.checksum)
        return dataclasses.replace(listing, files=tuple(sorted((*known, *added))))


def write_listing(listing: Listing, folder: str) -> str:
    """Write a listing to `folder`, named by its fingerprint; return the path of the file.

    Keeps the ten newest listings.

    Raises:
        StorageError: the listing cannot be written.
    """
    fs, root = open_folder(folder)
    name = listing.fingerprint().rpartition(":")[2] + _SUFFIX
    with explaining_errors("write a listing to", folder):
        if is_local(fs):
            os.makedirs(root, exist_ok=True)
            unfinished = f"{root}/{name}.{os.getpid()}"
            fs.pipe_file(unfinished, _encode(listing))
            os.replace(unfinished, f"{root}/{name}")
        else:
            fs.pipe_file(f"{root}/{name}", _encode(listing))
        found = [entry["name"] for entry in fs.ls(root, detail=True, refresh=True)]
        for path in sorted(found, key=fs.modified, reverse=True)[_MOST_KEPT:]:
            fs.rm_file(path)
    return f"{folder.rstrip('/')}/{name}"


def _encode(listing: Listing) -> bytes:
    head = {**vars(listing), "files": len(listing.files), "skipped": len(listing.skipped)}
    lines = [head, *listing.files, *listing.skipped]
    # Names that are not valid UTF-8 contain surrogates, which JSON escapes.
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return gzip.compress(text.encode("ascii"), compresslevel=1, mtime=0)


def read_listing(path: str) -> Listing:
    """Read what `write_listing` has written.

    Raises:
        StorageError: the file is missing or incomplete.
    """
    fs, place = open_folder(path)
    try:
        head, *lines = map(json.loads, gzip.decompress(fs.cat_file(place)).splitlines())
        for name, kind in (("files", ImageFile), ("skipped", Skipped)):
            head[name], lines = (
                tuple(itertools.starmap(kind, lines[: head[name]])),
                lines[head[name] :],
            )
        head["notes"] = tuple(head["notes"])
        return Listing(**head)
    except Exception as error:  # Each file system has errors of its own.
        raise StorageError(
            f"Cannot read the listing {path} ({reason_of(error)}): run again to recreate it."
        ) from error

"""Pictures of the report from the folder of images: rejected files, and images in several files.

Best effort: the folder may have changed, or be out of reach, since it was ingested.
"""

from __future__ import annotations

import heapq
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from fsspec import AbstractFileSystem

from components.images.picture import Picture
from components.images.thumbnails import make_thumbnail
from components.ingest.ingest_report import DUPLICATES_FILE, REJECTS_FILE
from components.report.facts import Reject, SameImage
from components.storage.folder import is_local, open_folder

# Larger files get no picture; so many are read, and held in memory, at once.
_MOST_BYTES = 32 * 2**20
_BATCH = 8

# For one batch, and for all of a call: a report is no reason to wait for a store that is down.
_BATCH_SECONDS = 20.0
_TOTAL_SECONDS = 60.0


def show_rejects(rejects_uri: str, root: str, *, most: int) -> tuple[Reject, ...]:
    """Show the first `most` rejected files, in the order of their paths.

    Args:
        rejects_uri: URI of ImageExampleGen's rejects.
        root: folder that was ingested, a path or URL without placeholders.
        most: how many to show.

    Returns:
        Each with a picture, if there is anything to see and `root` can be read in a minute.
    """
    found = list(islice(_read_lines(rejects_uri, REJECTS_FILE), most))
    pictures = _read_pictures(root, [reject["path"] for reject in found])
    return tuple(
        Reject(reject["path"], reject["category"], reject["reason"], picture)
        for reject, picture in zip(found, pictures, strict=True)
    )


def show_same_images(rejects_uri: str, root: str, *, most: int) -> tuple[SameImage, ...]:
    """Show `most` images that several files hold: those with several labels, then splits, first.

    Among equals they come in the order of their first paths. Otherwise it works as `show_rejects`.
    """
    # Holds only `most` of what may be a million lines.
    found = heapq.nsmallest(most, _read_lines(rejects_uri, DUPLICATES_FILE), key=_rank)
    pictures = _read_pictures(root, [same["paths"][0] for same in found])
    return tuple(
        SameImage(tuple(same["paths"]), tuple(same["labels"]), tuple(same["splits"]), picture)
        for same, picture in zip(found, pictures, strict=True)
    )


def _rank(same: dict[str, Any]) -> tuple[bool, bool]:
    return len(same["labels"]) == 1, len(same["splits"]) == 1


def _read_lines(folder: str, name: str) -> Iterator[dict[str, Any]]:
    import tensorflow as tf

    with tf.io.gfile.GFile(os.path.join(folder, name)) as file:
        yield from map(json.loads, file)


def _read_pictures(root: str, paths: Sequence[str]) -> list[Picture | None]:
    """Read files below `root` for as long as there is time; None for those without a picture."""
    pictures: list[Picture | None] = []
    end = time.monotonic() + _TOTAL_SECONDS
    try:
        fs, folder = open_folder(root)
        for start in range(0, len(paths), _BATCH):
            if time.monotonic() > end:
                break
            contents = _read_files(fs, folder, paths[start : start + _BATCH])
            pictures += [make_thumbnail(content) if content else None for content in contents]
    except Exception as error:  # Each file system has errors of its own.
        logging.warning("No thumbnails from %s: %s", root, error)
    return pictures + [None] * (len(paths) - len(pictures))


def _read_files(fs: AbstractFileSystem, folder: str, paths: Iterable[str]) -> list[bytes | None]:
    """Read files, of a store all at the same time; None for those that cannot be shown."""
    full = {path: f"{folder}/{path}" for path in paths if _is_below(path)}
    if is_local(fs):
        # A pipe would be waited for.
        full = {path: name for path, name in full.items() if os.path.isfile(name)}
    # One more byte tells that there are more.
    limit: dict[str, Any] = {"starts": 0, "ends": _MOST_BYTES + 1, "on_error": "return"}
    if fs.async_impl:
        limit["timeout"] = _BATCH_SECONDS
    contents = dict(zip(full, fs.cat_ranges(list(full.values()), **limit), strict=True))
    return [_usable(contents.get(path)) for path in paths]


def _usable(content: object) -> bytes | None:
    return content if isinstance(content, bytes) and len(content) <= _MOST_BYTES else None


def _is_below(path: str) -> bool:
    """Say whether a path stays in its folder; one that was listed does, a manifest's may not."""
    return ".." not in path.split("/")

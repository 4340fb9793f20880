"""Pictures from the image folder: rejected files, and images of a bucket.

Best effort: since ingest, the folder may have changed or become unreachable.
"""

import json
import logging
import os
import time
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from fsspec import AbstractFileSystem

from components.contract.artifact_files import open_file
from components.contract.example import REJECTS_FILE
from components.images.thumbnails import Thumbnail, make_thumbnail
from components.report.shown import Reject
from components.storage.folder import is_local, open_folder

# Larger files get no picture. A batch is read, and held in memory, at once.
_MOST_BYTES = 32 * 2**20
_BATCH = 8

# Timeouts of a batch and of a call: a report does not wait for a store that is down.
_BATCH_SECONDS = 20.0
_TOTAL_SECONDS = 60.0


def show_rejects(rejects_uri: str, root: str, *, most: int) -> tuple[Reject, ...]:
    """Show the first `most` rejected files, in the order of their paths.

    Returns:
        Rejects, with pictures if anything is readable and `root` can be read in a minute.
    """
    with open_file(os.path.join(rejects_uri, REJECTS_FILE)) as file:
        rejects = [json.loads(line) for line in islice(file, most)]
    pictures = read_pictures(root, [reject["path"] for reject in rejects])
    return tuple(
        Reject(reject["path"], reject["category"], reject["reason"], picture)
        for reject, picture in zip(rejects, pictures, strict=True)
    )


def read_pictures(root: str, paths: Sequence[str]) -> list[Thumbnail | None]:
    """Read files below `root` until the timeout; None for those without a picture."""
    pictures: list[Thumbnail | None] = []
    end = time.monotonic() + _TOTAL_SECONDS
    try:
        fs, folder = open_folder(root)
        for start in range(0, len(paths), _BATCH):
            if time.monotonic() > end:
                break
            contents = read_files(fs, folder, paths[start : start + _BATCH])
            pictures += [make_thumbnail(content) if content else None for content in contents]
    except Exception as error:  # Each file system has errors of its own.
        logging.warning("No thumbnails from %s: %s", root, error)
    return pictures + [None] * (len(paths) - len(pictures))


def read_files(fs: AbstractFileSystem, folder: str, paths: Iterable[str]) -> list[bytes | None]:
    """Read files, concurrently from a store; None for those that cannot be shown."""
    # Those of a manifest may leave the folder.
    full = {path: f"{folder}/{path}" for path in paths if ".." not in path.split("/")}
    if is_local(fs):
        # A pipe would block.
        full = {path: name for path, name in full.items() if os.path.isfile(name)}
    # One more byte shows that a file is too large.
    limit: dict[str, Any] = {"starts": 0, "ends": _MOST_BYTES + 1, "on_error": "return"}
    if fs.async_impl:
        limit["timeout"] = _BATCH_SECONDS
    contents = dict(zip(full, fs.cat_ranges(list(full.values()), **limit), strict=True))
    usable = {
        path: content
        for path, content in contents.items()
        if isinstance(content, bytes) and len(content) <= _MOST_BYTES
    }
    return [usable.get(path) for path in paths]

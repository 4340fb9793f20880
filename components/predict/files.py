"""Find the files to predict: the given files, and all files under the given folders, in order.

It imports neither TensorFlow nor TFX: Kubeflow's lookup does not start them.
"""

import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from components.contract.configuration import Positive, Text, configuration
from components.contract.errors import DataError
from components.contract.printable import hide_login
from components.contract.properties import LookupInput
from components.storage.folder_listing import (
    Found,
    explain_ignored,
    explain_name,
    find_file,
    find_files,
)

FOUND_KEY = "found_files"
"""The execution property that is looked up: a digest of the files of the folder."""


@configuration("predict")
class PredictConfig:
    """How a model labels files."""

    folder: Text | None = None
    """Folder or URL whose images the model labels at the end of a run if it is blessed. Unset: the
    pipeline has no such step. `local_runner.py predict` takes files as arguments."""

    top: Positive = 3
    """Labels per image, the most probable first."""


class ListedFile(NamedTuple):
    """One file."""

    name: str
    """Its name as shown to the user."""
    file: Found
    """Path relative to the folder of the source."""
    skipped: str
    """Why it is skipped; empty if it is not."""


@dataclass(frozen=True)
class Source:
    """Files of one folder."""

    folder: str
    """Path or URL."""
    entries: tuple[ListedFile, ...]


def find_sources(named: Sequence[str]) -> list[Source]:
    """Find the files to predict: files and folders that are `named` as paths or URLs.

    Files in a folder that are hidden, left by a system or no images by their names are skipped, but
    not if they are named themselves. Raises `DataError` if one of them does not exist, or there are
    no files.
    """
    pairs = itertools.chain.from_iterable(map(_find, named))
    # Group neighbors, so that files of one folder are read together.
    sources = [
        Source(folder, tuple(entry for _, entry in entries))
        for folder, entries in itertools.groupby(pairs, key=lambda pair: pair[0])
    ]
    if not sources:
        raise DataError(f"There are no files in {' or '.join(named)}.")
    return sources


def _find(named: str) -> Iterator[tuple[str, ListedFile]]:
    """Yield the folder of each file, and the file."""
    if file := find_file(named):
        # A file in the current folder has no folder in its name.
        folder = named.rpartition("/")[0] or ("/" if named.startswith("/") else ".")
        yield folder, ListedFile(hide_login(named), file, file.problem)
        return
    for entry in find_files(named, is_lenient=True):
        name = os.path.join(hide_login(named), entry.path)
        yield named, ListedFile(name, entry, explain_ignored(entry) or explain_name(entry.path))


def divide(source: Source, size: int) -> Iterator[Source]:
    """Divide a source into parts of up to `size` files."""
    for start in range(0, len(source.entries), size):
        yield Source(source.folder, source.entries[start : start + size])


def encode_source(source: Source) -> bytes:
    """Encode a source for workers; names that are not valid UTF-8 stay as they are."""
    return json.dumps((source.folder, source.entries)).encode("ascii")


def decode_source(content: bytes) -> Source:
    """Decode what `encode_source` has encoded."""
    folder, entries = json.loads(content)
    return Source(
        folder, tuple(ListedFile(name, Found(*file), skipped) for name, file, skipped in entries)
    )


def count_files(sources: Iterable[Source]) -> int:
    """Return the number of files, including skipped ones."""
    return sum(len(source.entries) for source in sources)


def look_up(inputs: Mapping[str, LookupInput], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Digest names, sizes and versions of all files."""
    digest = hashlib.sha256()
    for source in find_sources([properties["folder"]]):
        for entry in source.entries:
            fields = (entry.name, entry.file.size, entry.file.version)
            digest.update(repr(fields).encode("utf-8", "surrogateescape") + b"\n")
    return {FOUND_KEY: digest.hexdigest()}

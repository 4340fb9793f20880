"""The files that a model is asked about: those named, and all below the folders named, in order."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from components.contract.errors import DataError
from components.storage.folder import Found, explain_ignored, find_file, find_files


class Entry(NamedTuple):
    """One file."""

    name: str
    """What a person calls it."""
    file: Found
    """Relative to the folder of the source."""
    skipped: str
    """Why it is not read; empty if it is."""


@dataclass(frozen=True)
class Source:
    """Files of one folder."""

    folder: str
    """Path or URL."""
    entries: tuple[Entry, ...]


def find_sources(named: Sequence[str]) -> list[Source]:
    """Find the files to be asked about.

    Args:
        named: files and folders, paths or URLs. What is hidden in a folder, or left by a system, is
            skipped; a file that is named itself is not.

    Raises:
        DataError: one of them does not exist, or there are no files at all.
    """
    found = itertools.chain.from_iterable(map(_find, named))
    # Neighbours, so that files of one folder are read together.
    sources = [
        Source(folder, tuple(entry for _, entry in entries))
        for folder, entries in itertools.groupby(found, key=lambda pair: pair[0])
    ]
    if not sources:
        raise DataError(f"There are no files in {' or '.join(named)}.")
    return sources


def _find(named: str) -> Iterator[tuple[str, Entry]]:
    """Yield the folder of each file, and the file."""
    if file := find_file(named):
        # Without one, of a file in the current folder.
        folder = named.rpartition("/")[0] or ("/" if named.startswith("/") else ".")
        yield folder, Entry(named, file, "" if file.is_file else "not a regular file")
        return
    for entry in find_files(named):
        name = os.path.join(named, entry.path)
        yield named, Entry(name, entry, explain_ignored(entry))


def divide(source: Source, most: int) -> Iterator[Source]:
    """Divide a source into some with up to `most` files."""
    for start in range(0, len(source.entries), most):
        yield Source(source.folder, source.entries[start : start + most])


def count_files(sources: Iterable[Source]) -> int:
    """Return the number of files, those skipped included."""
    return sum(len(source.entries) for source in sources)

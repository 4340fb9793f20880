"""Rows of a listing, which stay in memory while they are few, and else in a temporary file.

A file of a listing takes half a kilobyte as a tuple. In compressed blocks on disk it takes some
dozens of bytes, and nothing in memory.
"""

import copy
import functools
import heapq
import itertools
import marshal
import os
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar, overload

MOST_IN_MEMORY = 200_000
"""Rows that are sorted at a time, and that stay in memory: 100 MB."""

# Rows of a block. Of each run that is merged, one block is in memory.
_BLOCK = 256

_Row = TypeVar("_Row", bound=NamedTuple)
_Key = Callable[[_Row], Any]


class RowTable(Sequence[_Row], Generic[_Row]):
    """Rows in a file, in the order in which they were given."""

    def __init__(
        self, rows: Iterable[_Row], kind: type[_Row], file: BinaryIO | None = None
    ) -> None:
        """Write rows, of what `marshal` takes, to the end of a file, which may hold other tables.

        Without a file, it is a temporary one.
        """
        self._file = file or _make_file()
        # Rows need no check of their length, which `_make` takes half of its time for.
        self._restore = functools.partial(tuple.__new__, kind)
        self._places: list[tuple[int, int]] = []
        remaining, length = iter(rows), 0
        while block := list(itertools.islice(remaining, _BLOCK)):
            data = zlib.compress(marshal.dumps([*map(tuple, block)]), 1)
            self._places.append((self._file.seek(0, 2), len(data)))
            self._file.write(data)
            length += len(block)
        self._file.flush()
        self._numbers = range(length)

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[_Row]:
        start, stop = self._numbers.start, self._numbers.stop
        for block in range(start // _BLOCK, -(-stop // _BLOCK)):
            first = block * _BLOCK
            yield from self._read(block)[max(0, start - first) : stop - first]

    @overload
    def __getitem__(self, place: int) -> _Row: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[_Row]: ...
    def __getitem__(self, place: int | slice) -> _Row | Sequence[_Row]:
        """Read one row; the rows of a slice, which has no step, stay where they are."""
        numbers = self._numbers[place]
        if isinstance(numbers, int):
            return self._read(numbers // _BLOCK)[numbers % _BLOCK]
        part = copy.copy(self)
        part._numbers = numbers
        return part

    def _read(self, number: int) -> list[_Row]:
        start, size = self._places[number]
        # Threads and forked processes share the position of the file.
        data = os.pread(self._file.fileno(), size, start)
        return [*map(self._restore, marshal.loads(zlib.decompress(data)))]


def _make_file() -> BinaryIO:
    # The system removes it with its last reader.
    return tempfile.TemporaryFile()


def keep(rows: Iterable[_Row], kind: type[_Row]) -> Sequence[_Row]:
    """Keep rows in their order: few in memory, many in a file."""
    remaining = iter(rows)
    first = tuple(itertools.islice(remaining, MOST_IN_MEMORY))
    if len(first) < MOST_IN_MEMORY:
        return first
    return RowTable(itertools.chain(first, remaining), kind)


class RowTables(Generic[_Row]):
    """Keeps the rows of many tables: the first in memory, and once they are many, in one file."""

    def __init__(self, kind: type[_Row]) -> None:
        """Keep rows of a kind."""
        self._kind, self._in_memory = kind, 0
        self._file: BinaryIO | None = None

    def keep(self, rows: Sequence[_Row]) -> Sequence[_Row]:
        """Keep the rows of a table in their order."""
        self._in_memory += len(rows)
        if self._in_memory <= MOST_IN_MEMORY:
            return rows
        self._file = self._file or _make_file()
        return RowTable(rows, self._kind, self._file)


class RowSorter(Generic[_Row]):
    """Collects rows in any order, and sorts them in bounded memory."""

    def __init__(self, kind: type[_Row], key: _Key[_Row] | None = None) -> None:
        """Sort by the rows themselves or by a key."""
        self._kind, self._key = kind, key
        self._rows: list[_Row] = []
        self._runs: list[RowTable[_Row]] = []
        self._file: BinaryIO | None = None

    def add(self, row: _Row) -> None:
        """Add a row."""
        self._rows.append(row)
        if len(self._rows) >= MOST_IN_MEMORY:
            self._spill()

    def sorted(self) -> Sequence[_Row]:
        """Return all rows in order; afterwards the sorter is empty."""
        if not self._runs:
            self._rows.sort(key=self._key)
            return tuple(self._rows)
        self._spill()
        return RowTable(heapq.merge(*self._runs, key=self._key), self._kind)

    def _spill(self) -> None:
        self._rows.sort(key=self._key)
        # One file for all, as a process may open about a thousand.
        self._file = self._file or _make_file()
        self._runs.append(RowTable(self._rows, self._kind, self._file))
        self._rows = []


def sort(rows: Iterable[_Row], kind: type[_Row], key: _Key[_Row] | None = None) -> Sequence[_Row]:
    """Sort rows in bounded memory."""
    sorter = RowSorter(kind, key)
    for row in rows:
        sorter.add(row)
    return sorter.sorted()

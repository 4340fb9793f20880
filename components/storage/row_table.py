"""Rows of a listing, which stay in memory while they are few, and else in a temporary file.

A file of a listing takes half a kilobyte as a tuple. In compressed blocks on disk it takes some
dozens of bytes, and nothing in memory.
"""

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
_Kind = Callable[[Iterable[Any]], _Row]
_Key = Callable[[_Row], Any]


class RowTable(Sequence[_Row], Generic[_Row]):
    """Rows in a file, in the order in which they were given."""

    def __init__(
        self, rows: Iterable[_Row], kind: _Kind[_Row], file: BinaryIO | None = None
    ) -> None:
        """Write the rows to the end of a file, by default a temporary one.

        Args:
            rows: tuples of what `marshal` takes.
            kind: makes a row of an iterable.
            file: may hold other tables.
        """
        self._file = file or _make_file()
        self._kind, self._length = kind, 0
        self._places: list[tuple[int, int]] = []
        remaining = iter(rows)
        while block := list(itertools.islice(remaining, _BLOCK)):
            data = zlib.compress(marshal.dumps([(*row,) for row in block]), 1)
            self._places.append((self._file.seek(0, 2), len(data)))
            self._file.write(data)
            self._length += len(block)
        self._file.flush()

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._length

    def __iter__(self) -> Iterator[_Row]:
        """Read the rows, a block at a time."""
        for number in range(len(self._places)):
            yield from self._read(number)

    def __reversed__(self) -> Iterator[_Row]:
        """Read the rows backwards."""
        for number in reversed(range(len(self._places))):
            yield from reversed(self._read(number))

    @overload
    def __getitem__(self, place: int) -> _Row: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[_Row, ...]: ...
    def __getitem__(self, place: int | slice) -> _Row | tuple[_Row, ...]:
        """Read one row, or the rows of a slice."""
        numbers = range(self._length)[place]
        if isinstance(numbers, int):
            return self._read(numbers // _BLOCK)[numbers % _BLOCK]
        blocks = itertools.groupby(numbers, key=lambda number: number // _BLOCK)
        return tuple(
            rows[number % _BLOCK]
            for block, inside in blocks
            for rows in [self._read(block)]
            for number in inside
        )

    def _read(self, number: int) -> list[_Row]:
        start, size = self._places[number]
        # Threads and forked processes share the position of the file.
        data = os.pread(self._file.fileno(), size, start)
        rows = marshal.loads(zlib.decompress(data))
        return [self._kind(row) for row in rows]


def _make_file() -> BinaryIO:
    # The system removes it with its last reader.
    return tempfile.TemporaryFile()


def keep(rows: Iterable[_Row], kind: _Kind[_Row]) -> Sequence[_Row]:
    """Keep rows in their order: few in memory, many in a file."""
    remaining = iter(rows)
    first = tuple(itertools.islice(remaining, MOST_IN_MEMORY))
    if len(first) < MOST_IN_MEMORY:
        return first
    return RowTable(itertools.chain(first, remaining), kind)


class RowSorter(Generic[_Row]):
    """Collects rows in any order, and sorts them in bounded memory."""

    def __init__(self, kind: _Kind[_Row], key: _Key[_Row] | None = None) -> None:
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


def sort(rows: Iterable[_Row], kind: _Kind[_Row], key: _Key[_Row] | None = None) -> Sequence[_Row]:
    """Sort rows in bounded memory."""
    sorter = RowSorter(kind, key)
    for row in rows:
        sorter.add(row)
    return sorter.sorted()

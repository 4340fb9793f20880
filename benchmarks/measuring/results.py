"""Results of a benchmark: spreads of repeated measurements, tables, and a file of every figure.

The range of five measurements contains the true median with a probability of 94 % (1 - 2 / 2⁵),
of three with 75 %. Two results differ only if their ranges do not overlap; one measurement has no
range and shows nothing.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

NOISE = "within the noise"
_WIDTH = 140


@dataclass(frozen=True)
class Spread:
    """The median and range of some measurements."""

    low: float
    median: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarize at least one measurement."""
        return cls(min(values), statistics.median(values), max(values), len(values))

    def differs(self, other: Spread) -> bool:
        """Return whether the two differ beyond the noise."""
        several = min(self.count, other.count) > 1
        return several and (self.low > other.high or other.low > self.high)

    def show(self, digits: int = 0) -> str:
        """Return the median and, of several measurements, their range as text."""
        middle, low, high = (f"{value:,.{digits}f}" for value in (self.median, self.low, self.high))
        return f"{middle} ({low} to {high})" if self.count > 1 else middle


def spread_all(figures: Mapping[str, Sequence[Mapping[str, Any]]], key: str) -> dict[str, Spread]:
    """Return the spread of one number of each contender's figures."""
    return {name: Spread.of([one[key] for one in found]) for name, found in figures.items()}


def ratio(new: Spread, old: Spread) -> str:
    """Return how many times as large `new` is, with a note if it may be noise.

    >>> ratio(Spread(9, 10, 11, 3), Spread(4, 5, 6, 3))
    '2.00 x'
    >>> ratio(Spread(9, 10, 11, 3), Spread(8, 9, 10, 3))
    '1.11 x, within the noise'
    """
    factor = f"{new.median / old.median:.2f} x"
    return factor if new.differs(old) else f"{factor}, {NOISE}"


@dataclass
class Figures:
    """A table of text cells."""

    title: str
    columns: Sequence[str]
    rows: list[list[str]] = field(default_factory=list)

    def add(self, *cells: str) -> None:
        """Add a row."""
        self.rows.append(list(cells))

    def show(self) -> None:
        """Print the table."""
        table = Table(*self.columns, title=self.title)
        for row in self.rows:
            table.add_row(*row)
        console = Console(highlight=False)
        # Without a terminal, rich would cut the table at 80 columns.
        console = console if console.is_terminal else Console(highlight=False, width=_WIDTH)
        console.print(table)


def write_results(module: str, tables: Sequence[Figures], figures: Any, file: str | None) -> None:
    """Write tables and figures with machine, date and command, if `--json` names a file."""
    if not file:
        return
    results = {
        **describe_measurement(module),
        "tables": [asdict(table) for table in tables],
        "figures": figures,
    }
    lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in results.items())
    Path(file).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(file)


def describe_measurement(module: str) -> dict[str, str]:
    """Return command, date, commit and machine of the benchmark that is running."""
    return {
        "command": shlex.join(["uv", "run", "-m", module, *_options(sys.argv[1:])]),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": _commit(),
        "machine": describe_machine(),
    }


def _options(arguments: Sequence[str]) -> list[str]:
    """Return the options that somebody else would give: `DIR` for paths, no `--json`."""
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        if word in ("--json", "--work"):
            next(words, None)
        else:
            name, equals, value = word.rpartition("=")
            kept.append(f"{name}{equals}DIR" if os.path.isabs(value) else word)
    return kept


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def describe_machine() -> str:
    """Return processor, cores, memory and the versions that matter, in a line."""
    model = platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(": ")[2] if names else model
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    versions = f"Python {platform.python_version()}, TensorFlow {metadata.version('tensorflow')}"
    return f"{cores} cores of {model}, {memory:.0f} GiB, {versions}"

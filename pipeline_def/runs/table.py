"""Prints the runs of a folder as `local_runner.py runs` shows them."""

import json
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from components.contract.configuration import to_dict
from components.contract.printable import describe_corrections, make_printable
from components.storage.saved_model import read_rollback, whole_versions
from pipeline_def.layout import Layout
from pipeline_def.runs.history import read_runs
from pipeline_def.runs.record import RunRecord

_COLUMNS = ("Run", "Started", "Images", "Options", "Accuracy", "Pushed")
# Settings and paths do not fit into a narrower column.
_MIN_WRAPPED_WIDTH = 12
_GAP = 2
_MAX_LENGTH = 40
_NOTHING = "–"
# Locations, of which the fingerprint tells more, and what a record leaves out.
_NOT_SHOWN = ("data", "output", "kubeflow.")


def show_runs(output: str, *, as_json: bool = False) -> None:
    """Print the runs in the folder `output`, newest last.

    Raises:
        StorageError: there are none, or they cannot be read.
    """
    records = read_runs(output)
    if as_json:
        print_json([to_dict(record) for record in records])
        return
    for pipeline, folder in sorted(
        {(r.pipeline, str(r.configuration.get("data"))) for r in records}
    ):
        print(f"Pipeline {make_printable(pipeline)}, images {make_printable(folder)}")
    cells = ((str(n), *_cells(run)) for n, run in enumerate(records, start=1))
    print_table(_COLUMNS, cells, breaks=("Options",))
    for line in _describe_rollback(output):
        print(line)


def _describe_rollback(output: str) -> Iterator[str]:
    """Yield a line if the version in use is an earlier one."""
    in_use = next(whole_versions(Layout(output).pushed), None)
    if in_use and (rollback := read_rollback(in_use)):
        name, others = os.path.basename(in_use), ", ".join(rollback.withdrawn.values())
        withdrawn = f"; withdrawn: {others}" if others else ""
        yield f"Version {name}, in use, is version {rollback.restored} again{withdrawn}"


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    # JSON does not escape all control characters; the rest would act on the terminal.
    print("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text))


def print_table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], *, breaks: Collection[str] = ()
) -> None:
    """Print a table as wide as the terminal, wrapping only the columns `breaks`."""
    cleaned = [tuple(map(_clean, row)) for row in rows]
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    needed = -_GAP
    for name, *cells in zip(titles, *cleaned, strict=True):
        folds = name in breaks
        widest = max(cell_len(line) for cell in (name, *cells) for line in cell.split("\n"))
        # Rich would use the longest word as the minimum width and crop the other columns.
        least = min(widest, _MIN_WRAPPED_WIDTH) if folds else widest
        overflow: Literal["fold", "ignore"] = "fold" if folds else "ignore"
        table.add_column(name, no_wrap=not folds, overflow=overflow, min_width=least)
        needed += least + _GAP
    for row in cleaned:
        table.add_row(*map(Text, row))
    console = Console(highlight=False)
    whole = Console(width=100_000).measure(table).maximum
    console.width = max(console.width, needed) if console.is_terminal else whole
    console.print(table)


def _clean(text: str) -> str:
    return "\n".join(map(make_printable, text.split("\n")))


def _cells(record: RunRecord) -> Iterator[str]:
    cached = sum(step.state == "cached" for step in record.steps.values())
    taken = f"{cached}/{len(record.steps)} cached"
    yield "\n".join((format_time(record.started), _describe_state(record), taken))
    yield "\n".join(_describe_images(record))
    yield "\n".join(_list_options(record)) or _NOTHING
    yield _describe_accuracy(record)
    if record.pushed:
        yield record.pushed.version
    else:
        yield {None: _NOTHING, True: "blessed only", False: record.outcome or "not blessed"}[
            record.blessed
        ]


def _describe_state(record: RunRecord) -> str:
    last = next(reversed(record.steps), "")
    if record.state == "done":
        begun, ended = map(datetime.fromisoformat, (record.started, record.ended or record.started))
        return f"done, {(ended - begun).total_seconds():.0f} s"
    if record.state == "running":
        return f"{last}\nrunning or killed"
    where = "at" if last and record.steps[last].state == record.state else "after"
    return f"{record.state} {where}\n{last}" if last else record.state


def _describe_images(record: RunRecord) -> Iterator[str]:
    if "{" in str(record.configuration.get("data")) and record.data.span is not None:
        version = "" if record.data.version is None else f", version {record.data.version}"
        yield f"span {record.data.span}{version}"
    yield from _shorten_fingerprint(record.data.fingerprint) or [_NOTHING]
    if record.data.corrections:
        yield from describe_corrections(record.data.corrections).split(", ")


def _list_options(record: RunRecord) -> Iterator[str]:
    """Yield a line for each option that the user has set."""
    settings = record.configuration
    for name in settings.get("given", ()):
        if name.startswith(_NOT_SHOWN):
            continue
        section, _, field = name.rpartition(".")
        value = settings[section][field] if section else settings[field]
        yield f"{name} {_format_value(value)}"


def _describe_accuracy(record: RunRecord) -> str:
    accuracy = record.metrics.get("accuracy")
    if accuracy is None:
        return _NOTHING
    searched = f"\n{record.search['trials']} trials" if record.search else ""
    return f"{accuracy:.4f}\non {record.split}{searched}"


def format_time(text: str) -> str:
    """Convert ISO 8601 to local time, to the minute."""
    return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M")


def _format_value(value: Any) -> str:
    """Format a setting as on the command line, shortened."""
    if value is None:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = make_printable(text)
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 1]}…"


def _shorten_fingerprint(fingerprint: str) -> list[str]:
    """Shorten the fingerprint of a listing, such as `files:1797,sha256:…`."""
    parts = dict(part.partition(":")[::2] for part in fingerprint.split(","))
    if parts.keys() >= {"files", "sha256"} and parts["files"].isdigit():
        return [f"{int(parts['files']):,} files", parts["sha256"][:8]]
    return [fingerprint[:20]] if fingerprint else []

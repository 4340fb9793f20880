"""What `local_runner.py runs` prints: the runs of a folder, or where a pushed model comes from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from components.contract.printable import make_printable
from pipeline_def.local.lineage import trace
from pipeline_def.local.lineage_tree import draw
from pipeline_def.local.run_history import IMAGES, Change, Run, read_runs
from pipeline_def.local.run_settings import CODE
from pipeline_def.local.run_text import (
    format_value,
    local_time,
    print_json,
    print_whole,
    shorten_fingerprint,
)

_COLUMNS = ("Started", "State", "Images", "Changed", "Accuracy", "Pushed", "Cached")
_MOST_CHANGES = 12
_NOTHING = "–"


def show_runs(output: str, *, as_json: bool = False) -> None:
    """Print the runs in the output folder `output`, newest last.

    Raises:
        UserError: there are none, or they cannot be read.
    """
    runs = read_runs(output)
    if as_json:
        print_json([dataclasses.asdict(run) for run in runs])
        return
    for pipeline, folder in sorted({(run.pipeline, run.data.folder) for run in runs}):
        print(
            f"Pipeline {make_printable(pipeline)}, images {make_printable(folder) or 'not known'}"
        )
    print_whole(_make_table([tuple(_cells(run, newest=run is runs[-1])) for run in runs]))


def show_lineage(output: str, wanted: str, *, as_json: bool = False) -> None:
    """Print where the model comes from that was pushed as `wanted`, a version or its folder.

    Raises:
        UserError: no run in the output folder `output` has pushed it.
    """
    lineage = trace(output, wanted)
    if as_json:
        print_json(dataclasses.asdict(lineage))
        return
    for tree in draw(lineage):
        print_whole(tree)


def _make_table(rows: Sequence[Sequence[str]]) -> Table:
    """Lay out rows of cells; only what has changed is broken into more lines."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in _COLUMNS:
        breaks = name == "Changed"
        table.add_column(name, no_wrap=not breaks, overflow="fold" if breaks else "ignore")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _cells(run: Run, *, newest: bool) -> Iterator[str]:
    yield local_time(run.started)
    yield _state(run, newest=newest)
    yield _images(run)
    yield "\n".join(_list_changes(run.changes)) or _NOTHING
    yield _accuracy(run)
    yield _verdict(run)
    yield f"{run.cached}/{len(run.nodes)}"


def _state(run: Run, *, newest: bool) -> str:
    if run.state == "done":
        return f"done, {run.seconds:.0f} s"
    if run.state == "failed":
        return f"failed at\n{run.node}"
    if run.nodes[run.node] != "unfinished":
        return f"stopped after\n{run.node}"
    return f"{run.node}\nruns or was stopped" if newest else f"stopped at\n{run.node}"


def _images(run: Run) -> str:
    # The number of files and the digest, a line each.
    found = "\n".join(shorten_fingerprint(run.data.fingerprint).rsplit(" ", 1)) or _NOTHING
    if "{" in run.data.folder and run.data.span is not None:
        version = "" if run.data.version is None else f", version {run.data.version}"
        return f"span {run.data.span}{version}\n{found}"
    return found


def _verdict(run: Run) -> str:
    if run.blessed is None:
        return _NOTHING
    if not run.pushed:
        return "blessed only" if run.blessed else "not blessed"
    return "as before" if run.nodes.get("Pusher") == "cached" else run.pushed


def _list_changes(changes: Sequence[Change]) -> Iterator[str]:
    """Write a line for each setting, and one for all code."""
    code = [change for change in changes if change.name.startswith(CODE)]
    if code:
        yield CODE + ", ".join(change.name.removeprefix(CODE) for change in code)
    settings = [change for change in changes if change not in code]
    for change in settings[:_MOST_CHANGES]:
        # Their fingerprint has a column.
        values = f" {format_value(change.old)} → {format_value(change.new)}"
        yield change.name + ("" if change.name == IMAGES else values)
    if len(settings) > _MOST_CHANGES:
        yield f"and {len(settings) - _MOST_CHANGES} more, see --json"


def _accuracy(run: Run) -> str:
    if "accuracy" not in run.metrics:
        return _NOTHING
    change = "" if run.accuracy_change is None else f", {run.accuracy_change:+.4f}"
    return f"{run.metrics['accuracy']:.4f}{change}\non {run.split}"

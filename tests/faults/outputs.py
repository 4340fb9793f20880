"""Describe an output folder so that it can be compared with another."""

import contextlib
import hashlib
import itertools
import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_def.layout import Layout
from pipeline_def.runs.record import RunRecord, find_producers, read_records

# ML Metadata's numbers of states.
_LIVE = "SELECT uri FROM Artifact WHERE state = 2"
_RUNNING = "SELECT id FROM Execution WHERE last_known_state = 2"

Names = dict[str, frozenset[str]]
"""`step/output` → names of its files, without the parts that differ between runs."""


@dataclass(frozen=True)
class Result:
    """What faults must not change."""

    shards: list[dict[str, str]]
    """Of ImageExampleGen and Transform: file of their examples → SHA-256."""
    model: dict[str, str]
    """File of the pushed model → SHA-256: its weights, bit for bit."""
    metrics: dict[str, float | None]
    versions: int
    lineage: dict[str, str]
    """Step that led to the model → digest of its code."""


def read_result(output: Path) -> Result:
    """Describe the newest run, which must be done."""
    records = read_records(str(output))
    record = records[-1]
    assert record.state == "done", record.error
    assert record.pushed is not None
    versions = [path for path in (output / "pushed").iterdir() if path.name.isdigit()]
    examples = ("ImageExampleGen", "examples"), ("Transform", "transformed_examples")
    return Result(
        shards=[_digest_files(Path(record.steps[s].outputs[o].uri)) for s, o in examples],
        model=_digest_files(Path(record.pushed.destination, "variables")),
        metrics=record.metrics,
        versions=len(versions),
        lineage={
            name: run.code.get(name, "") for run, name in _trace(records, record.pushed.version)
        },
    )


def _trace(records: Sequence[RunRecord], version: str) -> Iterator[tuple[RunRecord, str]]:
    """Yield the run and the name of every step that contributed to a pushed version, from the push.

    Nothing if no run pushed it.
    """
    producers = find_producers(records)
    pushes = (run for run in records if run.pushed and run.pushed.version == version)
    waiting = [(run, "Pusher") for run in itertools.islice(pushes, 1)]
    seen = set()
    for run, name in waiting:
        if name not in seen:
            seen.add(name)
            yield run, name
            earlier = (producers.get(uris[0]) for uris in run.steps[name].inputs.values())
            waiting.extend(filter(None, earlier))


def _digest_files(folder: Path) -> dict[str, str]:
    digests = {}
    for path in filter(Path.is_file, folder.rglob("*")):
        content = path.read_bytes()
        if path.suffix == ".json":
            # Each attempt has a number of its own, which is in the path of what Transform read.
            content = re.sub(rb'"made_from": "[^"]*/\d+"', b"", content)
        digests[str(path.relative_to(folder))] = hashlib.sha256(content).hexdigest()
    return digests


def list_live(output: Path) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield `step/output` and the file names of each live artifact."""
    layout = Layout(str(output))
    for [uri] in _ask(layout, _LIVE):
        step, key = os.path.relpath(uri, layout.artifacts).split(os.sep)[:2]
        yield f"{step}/{key}", _name_files(Path(uri))


def name_live(output: Path) -> Names:
    """Return the files of the live artifacts."""
    return dict(list_live(output))


def check_live(output: Path, expected: Names) -> None:
    """Every live artifact is complete."""
    for artifact, names in list_live(output):
        assert names == expected[artifact], artifact


def list_leftovers(output: Path) -> set[str]:
    """Return `step/output` of each folder unknown to ML Metadata."""
    layout = Layout(str(output))
    known = {uri for [uri] in _ask(layout, "SELECT uri FROM Artifact")}
    folders = Path(layout.artifacts).glob("[!.]*/[!.]*/*")
    return {
        f"{folder.parent.parent.name}/{folder.parent.name}"
        for folder in folders
        if known.isdisjoint((str(folder), str(folder / "value")))
    }


def check_result(output: Path, expected: Result, names: Names) -> None:
    """The output is exactly that of an undisturbed run."""
    assert read_result(output) == expected
    check_live(output, names)
    assert count_running(output) == 0
    # TensorBoard shows there the training before it was stopped.
    assert list_leftovers(output) <= {"Trainer/model_run"}


def count_running(output: Path) -> int:
    """Return the number of running executions in ML Metadata."""
    return len(_ask(Layout(str(output)), _RUNNING))


def _ask(layout: Layout, query: str) -> list[tuple[Any, ...]]:
    """Query ML Metadata, which a stopped run may not have created."""
    if not os.path.exists(layout.metadata):
        return []
    with contextlib.closing(sqlite3.connect(layout.metadata)) as store:
        if not store.execute("SELECT 1 FROM sqlite_master WHERE name = 'Artifact'").fetchall():
            return []
        return store.execute(query).fetchall()


def _name_files(place: Path) -> frozenset[str]:
    paths = [place] if place.is_file() else place.rglob("*")
    names = (str(path.relative_to(place.parent)) for path in paths if path.is_file())
    # Numbers name executions, times and processes. A resumed training begins another log.
    return frozenset(re.sub(r"\d+", "N", name) for name in names if "tfevents" not in name)

"""Statistics of earlier runs, to compare those of the next one with.

TFX would find them in ML Metadata, which open-source Kubeflow has no resolvers for. So they are
kept in a folder, as pushed models are.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass

from tfx import types
from tfx.components.statistics_gen.executor import DEFAULT_FILE_NAME
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.utils import io_utils

from components.storage.tfx_filesystem import register_object_stores
from components.validation.statistics import Statistics, digest_statistics, read_statistics

# Written last: without it a copy is not whole.
_FACTS_FILE = "kept.json"

_MOST_KEPT = 30


@dataclass(frozen=True)
class Kept:
    """A copy of what StatisticsGen wrote."""

    time: int
    """When, seconds since 1970-01-01; also the name of its folder."""
    span: int
    """Of the examples; 0 where the data has no spans."""
    digest: str
    """Of the train split's statistics."""


def span_of(statistics: types.Artifact) -> int:
    """Return the span of the examples behind an artifact; a double on Kubeflow."""
    return int(statistics.span or 0)


def keep_statistics(folder: str, statistics: types.Artifact) -> None:
    """Copy what StatisticsGen wrote to `folder`, unless it is what was copied there last.

    The oldest are deleted once there are more than 30.
    """
    register_object_stores()
    kept = list_kept(folder)
    digest = digest_statistics(read_statistics(statistics, "train"))
    if kept and kept[-1].digest == digest:
        return
    # Two runs within a second still have an order.
    now = max([int(time.time()), *(copy.time + 1 for copy in kept)])
    target = os.path.join(folder, str(now))
    for split in artifact_utils.decode_split_names(statistics.split_names):
        content = read_statistics(statistics, split).SerializeToString(deterministic=True)
        io_utils.write_bytes_file(_split_file(target, split), content)
    facts = json.dumps(asdict(Kept(now, span_of(statistics), digest)), sort_keys=True)
    io_utils.write_string_file(os.path.join(target, _FACTS_FILE), facts)
    for copy in kept[: max(0, len(kept) + 1 - _MOST_KEPT)]:
        fileio.rmtree(os.path.join(folder, str(copy.time)))


def list_kept(folder: str) -> list[Kept]:
    """Return the whole copies in `folder`, the oldest first."""
    register_object_stores()
    if not fileio.isdir(folder):
        return []
    # TensorFlow ends the names of remote folders with a slash.
    names = [name.rstrip("/") for name in fileio.listdir(folder)]
    found = (
        read_facts(os.path.join(folder, name))
        for name in sorted((name for name in names if name.isdigit()), key=int)
    )
    return [kept for kept in found if kept]


def read_facts(copy: str) -> Kept | None:
    """Return the facts of the copy in folder `copy`; None when it is not whole."""
    path = os.path.join(copy, _FACTS_FILE)
    if not fileio.exists(path):
        return None
    with fileio.open(path, "r") as file:
        return Kept(**json.loads(file.read()))


def find_earlier(folder: str, statistics: types.Artifact) -> str:
    """Return the copy to compare `statistics` with, or "".

    That is the newest of the latest span before; where there is none, the newest whose content
    differs, as a run on unchanged examples would else be compared with itself.
    """
    kept = list_kept(folder)
    if not kept:
        return ""
    digest, span = digest_statistics(read_statistics(statistics, "train")), span_of(statistics)
    others = [copy for copy in kept if copy.digest != digest]
    before = [copy for copy in others if copy.span < span]
    newest = max(before, key=lambda copy: (copy.span, copy.time)) if before else None
    newest = newest or (others[-1] if others else None)
    return os.path.join(folder, str(newest.time)) if newest else ""


def read_copy(copy: str, split: str) -> Statistics | None:
    """Return the statistics of a split in a copy; None when it has no such split."""
    register_object_stores()
    path = _split_file(copy, split)
    if not fileio.exists(path):
        return None
    with fileio.open(path, "rb") as file:
        return Statistics.FromString(file.read())


def _split_file(copy: str, split: str) -> str:
    return os.path.join(copy, f"Split-{split}", DEFAULT_FILE_NAME)

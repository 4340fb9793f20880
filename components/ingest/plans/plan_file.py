"""The plans of a run in one file: Beam moves their numbers, and a worker reads its own plan.

Beam pickles an element about eight times on its way to a worker: as lists of files, the plans of
60,000 small images took more than a third of the time in which the interpreter was busy.
"""

from __future__ import annotations

import itertools
import json
import os
import struct
from collections.abc import Sequence

from components.ingest.listing import ImageFile
from components.ingest.plans.shard_plan import ShardPlan
from components.records.shard_files import UNFINISHED
from components.storage.artifact_files import make_folders, open_file

_NAME = "plans"
# Where each plan begins, and where the last one ends, in bytes; it precedes the plans, in JSON.
_OFFSET = struct.Struct("<Q")


def write_plans(examples_uri: str, plans: Sequence[ShardPlan]) -> None:
    """Write the plans of a run to where its workers read them, whichever runner Beam has."""
    # Names that are not valid UTF-8 reach Python as surrogates, which JSON keeps as escapes.
    texts = [
        json.dumps((plan.group, plan.index, plan.count, plan.files)).encode("ascii")
        for plan in plans
    ]
    offsets = itertools.accumulate(map(len, texts), initial=_OFFSET.size * (len(texts) + 1))
    make_folders(os.path.join(examples_uri, UNFINISHED))
    with open_file(_path(examples_uri), "wb") as file:
        file.write(b"".join([*map(_OFFSET.pack, offsets), *texts]))


def read_plan(examples_uri: str, number: int) -> ShardPlan:
    """Read the plan that was the `number`th, from 0, of those written."""
    with open_file(_path(examples_uri), "rb") as file:
        file.seek(_OFFSET.size * number)
        start, end = struct.unpack("<2Q", file.read(2 * _OFFSET.size))
        file.seek(start)
        group, index, count, files = json.loads(file.read(end - start))
    return ShardPlan(group, index, count, tuple(map(ImageFile._make, files)))


def _path(examples_uri: str) -> str:
    return os.path.join(examples_uri, UNFINISHED, _NAME)

"""What is known of the files of each plan, kept beside the shards for later ingests."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from components.contract.artifact_files import open_file, reading
from components.images.transcode import THUMBPRINT_SIDE
from components.ingest.plan.shard_plan import ShardPlan
from components.ingest.source.listing import ImageFile
from components.records.shard_files import PLANS, replace_file

Rows = NDArray[np.uint8]
"""A gray picture a row, and the shorter side of its image, pixels, up to 255."""
ROW_BYTES = THUMBPRINT_SIDE**2 + 1
NO_PICTURE = bytes(ROW_BYTES)

FACTS, PICTURES = ".json", ".pictures"
"""Suffixes of the files of a plan."""

_PLAN = re.compile(r"(.*)-(\d+)-of-(\d+)", re.DOTALL)


class Fact(NamedTuple):
    """What is known of a file, and where its record lies."""

    sha256: str
    """Hexadecimal digest; "" if the file could not be read."""
    category: str = ""
    """Why the content is not usable, if so."""
    reason: str = ""
    split: str = ""
    """Split of the shard with its record; "" if it has none."""
    label: str = ""
    """Label in the record."""
    notes: Sequence[str] = ()
    """How the image differs from the file."""


@dataclass(frozen=True)
class PlanFacts:
    """The facts about the files of a plan, in their order."""

    plan: ShardPlan
    facts: Sequence[Fact]
    sizes: Mapping[str, int]
    """Split → bytes of the shard of the plan."""

    def files(self) -> Iterator[tuple[ImageFile, Fact]]:
        """Iterate over the files, each with what is known of it."""
        return zip(self.plan.files, self.facts, strict=True)


def plan_path(examples_uri: str, plan: ShardPlan) -> str:
    """Return the path of the files on a plan, without their suffix."""
    name = f"{plan.group}-{plan.index:05d}-of-{plan.count:05d}"
    return os.path.join(examples_uri, PLANS, name)


def write_facts(examples_uri: str, facts: PlanFacts) -> None:
    """Write facts to a file, which reaches the executor with any Beam runner."""
    # The name has the rest of the plan: where only that changes, ingests share the file.
    lines = map(json.dumps, (facts.sizes, [*facts.facts], [*facts.plan.files]))
    content = "\n".join(lines).encode("ascii")
    replace_file(examples_uri, plan_path(examples_uri, facts.plan) + FACTS, content)


def read_facts(path: str, plan: ShardPlan | None = None) -> PlanFacts:
    """Read the facts at `path`, see `plan_path`; those of `plan` without its files.

    Raises:
        StorageError: the file is damaged.
    """
    with open_file(path + FACTS) as file:
        text = file.read()
    with reading(path + FACTS):
        sizes, facts, files = text.split("\n")
        if plan is None:
            [(group, index, count)] = _PLAN.findall(os.path.basename(path))
            rows = map(ImageFile._make, json.loads(files))
            plan = ShardPlan(group, int(index), int(count), tuple(rows))
        return PlanFacts(plan, [*map(Fact._make, json.loads(facts))], json.loads(sizes))


def write_pictures(examples_uri: str, plan: ShardPlan, rows: bytes | bytearray) -> None:
    """Write the pictures of the files of a plan, which reach ingest with any Beam runner."""
    replace_file(examples_uri, plan_path(examples_uri, plan) + PICTURES, bytes(rows))


def read_pictures(path: str) -> Rows:
    """Read the pictures of the files of a plan, see `plan_path`."""
    with open_file(path + PICTURES, "rb") as file:
        return np.frombuffer(file.read(), np.uint8).reshape(-1, ROW_BYTES)

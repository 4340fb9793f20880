"""What is known of the files of each plan, kept beside the shards for later ingests."""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from components.contract.artifact_files import open_file, reading
from components.ingest.shard_plan import ShardPlan
from components.ingest.source.listing import ImageFile
from components.records.shard_files import PLANS, replace_file, shard_path

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


Contents = Mapping[str, Mapping[str, tuple[str, str]]]
"""Split → name of each shard → digests of its files, and of their labels."""


@dataclass(frozen=True)
class PlanFacts:
    """The facts about the files of a plan, in their order."""

    plan: ShardPlan
    facts: Sequence[Fact]
    sizes: Mapping[str, int]
    """Split → bytes of the shard of the plan."""

    def shards(self, examples_uri: str) -> dict[str, str]:
        """Return split → path of the shard of the plan."""
        index, count = self.plan.index, self.plan.count
        return {split: shard_path(examples_uri, split, index, count) for split in self.sizes}

    def contents(self) -> Contents:
        """Describe each shard of the plan by its files and their labels."""
        rows: dict[str, list[tuple[str, str, str]]] = {}
        for file, fact in zip(self.plan.files, self.facts, strict=True):
            rows.setdefault(fact.split, []).append((file.path, fact.sha256, fact.label))
        return {
            split: {
                os.path.basename(path): (
                    _digest([of[:2] for of in rows[split]]),
                    _digest([label for *_, label in rows[split]]),
                )
            }
            for split, path in self.shards("").items()
        }


def _digest(values: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(values).encode("ascii")).hexdigest()[:32]


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
        if "\n" in text:
            sizes, facts, files = text.split("\n")
        else:  # Of an earlier version.
            *_, files, facts, sizes = map(json.dumps, json.loads(text))
        if plan is None:
            [(group, index, count)] = _PLAN.findall(os.path.basename(path))
            rows = map(ImageFile._make, json.loads(files))
            plan = ShardPlan(group, int(index), int(count), tuple(rows))
        return PlanFacts(plan, [*map(Fact._make, json.loads(facts))], json.loads(sizes))

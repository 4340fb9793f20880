"""Ingest without Beam, TFX and TensorFlow: the same plans, one after the other."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.ingest.config import IngestConfig
from components.ingest.lookup import list_source
from components.ingest.source.listing import check_labels
from components.ingest.write.plan_writer import IngestJob, write_plan
from components.ingest.write.run import WritePlans, ingest_listing
from components.records.shard_files import count_examples, read_index

HEADER = IngestConfig(check="header")
"""Does not decode PNGs, for which ingest would load TensorFlow."""


@dataclass(frozen=True)
class Ingested:
    """The output of ingest."""

    examples: Path
    rejects: Path
    read: int
    """Number of files that no earlier ingest had read."""

    @property
    def counts(self) -> dict[str, int]:
        """Split → examples."""
        return count_examples(read_index(str(self.examples)))

    @property
    def summary(self) -> dict[str, Any]:
        summary: dict[str, Any] = json.loads((self.rejects / "summary.json").read_text())
        return summary

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Lines of a list of rejects, skipped files or duplicates."""
        return [json.loads(line) for line in (self.rejects / name).read_text().splitlines()]

    def rejected(self) -> list[tuple[str, str]]:
        """Path and category of each reject."""
        return [(r["path"], r["category"]) for r in self.lines("rejects.jsonl")]

    def shards(self, split: str) -> bytes:
        """All shards of a split, one after the other."""
        return b"".join(p.read_bytes() for p in sorted(self.examples.glob(f"Split-{split}/*")))

    def splits_of(self, *names: str) -> list[str]:
        """The split of each file; no name may contain another."""
        shards = {split: self.shards(split) for split in self.counts}
        return [next(s for s, data in shards.items() if name.encode() in data) for name in names]


def write_all(numbers: Sequence[int], job: IngestJob) -> None:
    for number in numbers:
        write_plan(number, job)


def ingest(
    folder: Path | str,
    target: Path,
    config: IngestConfig = HEADER,
    *,
    write: WritePlans | None = None,
    number: str = "",
    code: str = "",
) -> Ingested:
    """Ingest `folder` into `target`, as the output with a number if one is given."""
    listing = list_source(str(folder), config)
    check_labels(listing)
    examples, rejects = target / "examples" / number, target / "rejects" / number
    unread = [0]

    def note(numbers: Sequence[int], job: IngestJob) -> None:
        # A second pass reads no files.
        unread.append(job.unread)
        (write or write_all)(numbers, job)

    ingest_listing(
        listing, config, examples=str(examples), rejects=str(rejects), write=note, code=code
    )
    return Ingested(examples, rejects, sum(unread))


def write_manifest(path: Path, groups: Mapping[str, str]) -> str:
    """List files `label/name` with their groups."""
    rows = (f"{name},{name.partition('/')[0]},{group}\n" for name, group in groups.items())
    path.write_text("path,label,group\n" + "".join(rows))
    return str(path)

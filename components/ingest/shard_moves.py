"""Move records between the shards of a plan, without reading the images again."""

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from components.images.check_result import Category
from components.ingest.ingest_report import PlanReport, read_report, write_report
from components.ingest.shard_plan import ShardPlan
from components.ingest.stratification import SplitRule
from components.records.record_reader import read_records
from components.records.shard_files import open_shard, shard_path
from components.records.tfrecord import RecordWriter
from components.storage.artifact_files import remove

_NOT_ITS_OWN = "The shards of plan {} {} are not its own: run again."


@dataclass(frozen=True)
class ShardMoves:
    """What changes once all images are known."""

    before: SplitRule
    """By which the shards were written."""
    after: SplitRule
    dropped: Mapping[str, str] = field(default_factory=dict)
    """Path of an image to reject → path of its near duplicate."""
    corrected: Mapping[str, str | None] = field(default_factory=dict)
    """Digest of an image → its corrected label."""

    def affect(self, report: PlanReport) -> bool:
        """Return whether images of a plan move or are dropped."""
        return any(
            file.path in self.dropped
            or self.before.split_of(file, sha256) != self.after.split_of(file, sha256)
            for file, sha256 in zip(report.plan.files, report.digests, strict=True)
            if sha256
        )


def move_records(
    plan: ShardPlan, examples_uri: str, moves: ShardMoves, count: Callable[[int], None]
) -> None:
    """Write the shards of a plan anew, in the same order of images, and its report."""
    report = read_report(examples_uri, plan)
    readers = {split: read_records(path) for split, path in report.shards(examples_uri).items()}
    labels: dict[str, collections.Counter[str]] = {}
    rejects, digests = list(report.rejects), list(report.digests)
    with contextlib.ExitStack() as stack:
        writers: dict[str, RecordWriter] = {}
        for number, (file, sha256) in enumerate(zip(plan.files, report.digests, strict=True)):
            count(1)
            if not sha256:
                continue
            record = bytes(next(readers[moves.before.split_of(file, sha256)], b""))
            # Beam may repeat a plan whose shards have been written, but not its report.
            if record.rfind(sha256.encode()) < 0:
                raise RuntimeError(_NOT_ITS_OWN.format(plan.group, plan.index))
            if twin := moves.dropped.get(file.path):
                category = Category.NEAR_DUPLICATE.value
                reason = f"a copy of {twin}"
                rejects.append({"path": file.path, "category": category, "reason": reason})
                digests[number] = ""
                continue
            split = moves.after.split_of(file, sha256)
            if split not in writers:
                path = shard_path(examples_uri, split, plan.index, plan.count)
                writers[split] = stack.enter_context(open_shard(path))
                labels[split] = collections.Counter()
            writers[split].write([record])
            labels[split][moves.corrected.get(sha256) or file.label] += 1
        if any(next(reader, None) is not None for reader in readers.values()):
            raise RuntimeError(_NOT_ITS_OWN.format(plan.group, plan.index))
    for split in report.labels.keys() - labels.keys():
        remove(report.shards(examples_uri)[split])
    changed = dataclasses.replace(report, labels=labels, rejects=rejects, digests=digests)
    write_report(examples_uri, changed)

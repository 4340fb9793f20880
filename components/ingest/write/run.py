"""Ingest a listing: plan the shards, write them, and account for every file."""

import dataclasses
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from components.contract.example import EVAL, TEST, TRAIN
from components.contract.printable import make_printable
from components.contract.rules_of_thumb import FEW_FOR_WEIGHTS
from components.host.machine import pause_collection
from components.host.progress import report_result
from components.images.options import SHRINKING
from components.ingest.config import IngestConfig
from components.ingest.plan.assignment import Assignment, Images, Report, list_units, report_on
from components.ingest.plan.decision import Decision, decide
from components.ingest.plan.facts import Fact, PlanFacts, plan_path, read_facts
from components.ingest.plan.shard_plan import ShardPlan, plan_shards, write_plans
from components.ingest.plan.splits import SplitRule
from components.ingest.source.corrections import choose_labels
from components.ingest.source.folder_layout import PICTURES
from components.ingest.source.listing import Listing, find_look_alikes
from components.ingest.source.values import describe_columns
from components.ingest.write.accounting import check_report, write_rejects
from components.ingest.write.earlier_shards import (
    Earlier,
    TakenOver,
    read_earlier,
    reuse_key,
    take_over,
)
from components.ingest.write.plan_writer import IngestJob, write_plan
from components.ingest.write.processes import PlanProcesses, needs_processes
from components.records.shard_files import remove_shards, write_index
from components.records.shard_work import ConcurrentDoFn
from components.storage.row_table import RowTables

_JPEG = (".jpg", ".jpeg", ".jpe", ".jfif")
# Files of a plan whose names are looked at.
_SAMPLED = 16

WritePlans = Callable[[Sequence[int], IngestJob], None]
"""Calls `write_plan` for the number of each plan, in any order, and waits until all are written."""


def ingest_listing(
    listing: Listing,
    config: IngestConfig,
    *,
    examples: str,
    rejects: str,
    write: WritePlans,
    code: str = "",
) -> list[str]:
    """Write the shards of `listing` and their index, and account for every file.

    `examples` and `rejects` are paths or URLs of folders, and `code` the digest of the code of
    ingest: only with it, earlier shards are used again. Return the splits that have examples.
    """
    for warning in (*listing.notes, *find_look_alikes(listing)):
        logging.warning(make_printable(warning))
    remove_shards(examples)
    key = reuse_key(config, code)
    # Older outputs, in which classes could have fractions of their own, keep their splits.
    division = json.dumps([listing.fractions, {}], sort_keys=True)
    with pause_collection():
        earlier = Earlier()
        if code:
            earlier = read_earlier(examples, config, key=key, division=division)
        before = [facts.plan for facts in earlier.facts]
        plans = plan_shards(listing.files, config, listing.fractions, before)
        taken = take_over(plans, earlier, examples, config)
        job = _begin(plans, taken, earlier, listing, config, examples)
    if numbers := [number for number in range(len(plans)) if number not in taken.facts]:
        write_plans(examples, plans, numbers)
        write(numbers, job)
    with pause_collection():
        tables, facts = RowTables(Fact), []
        for number, plan in enumerate(plans):
            known = taken.facts.get(number) or read_facts(plan_path(examples, plan), plan)
            facts.append(dataclasses.replace(known, facts=tables.keep(known.facts)))
        decided = decide(
            facts, job.assignment, listing, config, examples_uri=examples, earlier=earlier.splits
        )
        report = report_on(facts, decided.assignment)
    if report.misplaced:
        job = dataclasses.replace(job, assignment=decided.assignment)
        report = _rearrange(facts, report, job, write)
    with pause_collection():
        index = _account(report, facts, decided, listing, config, rejects)
    if code:
        index |= {"made_by": key, "divided_by": division}
    write_index(examples, **index)
    return sorted(index["splits"])


def _begin(
    plans: Sequence[ShardPlan],
    taken: TakenOver,
    earlier: Earlier,
    listing: Listing,
    config: IngestConfig,
    examples: str,
) -> IngestJob:
    """Say how many files are read, and return the job that writes the remaining plans."""
    files, unread = len(listing.files), len(listing.files) - taken.known
    if files and earlier.uri:
        report_result(f"{files:,} images: {files - unread:,} unchanged, {unread:,} read")
    else:
        logging.info("There are no earlier shards of these images here: all are read.")
    # Small classes are divided once all digests are known; few records have to move then.
    rule = SplitRule(listing.fractions, assigned=earlier.splits)
    return IngestJob(
        listing.root,
        examples,
        config,
        Assignment(rule, choose_labels(listing.corrections, listing.labels())),
        total=sum(len(plan.files) for n, plan in enumerate(plans) if n not in taken.facts),
        unread=unread,
        for_tensorflow=config.check == "pixels" and _are_other_pictures(plans),
        earlier=taken.sources,
    )


def _are_other_pictures(plans: Iterable[ShardPlan]) -> bool:
    """Return whether most of the first files of all plans are named like pictures, but not JPEGs.

    Plans mix the files, so these are a sample.
    """
    names = [file.path.lower() for plan in plans for file in plan.files[:_SAMPLED]]
    others = [name for name in names if name.endswith(PICTURES) and not name.endswith(_JPEG)]
    return 2 * len(others) > len(names)


def _account(
    report: Report,
    facts: Sequence[PlanFacts],
    decided: Decision,
    listing: Listing,
    config: IngestConfig,
    rejects: str,
) -> dict[str, Any]:
    """Write the lists of rejects, check that all is well, and return the facts of the index."""
    write_rejects(rejects, report, listing, decided)
    check_report(report, listing, config)
    shrinking = {name: getattr(config, name) for name in SHRINKING}
    index: dict[str, Any] = {"splits": report.shards, "labels": report.labels, "ingest": shrinking}
    if columns := describe_columns(listing.columns()):
        index["columns"] = columns
    by_hash = config.splits is None and listing.tally.labels.keys() - {TEST} == {None}
    count = sum(report.labels[split].total() for split in (TRAIN, EVAL) if split in report.labels)
    if by_hash and count < FEW_FOR_WEIGHTS:
        # Training may divide them again, into folds.
        images = Images(facts, decided.assignment.corrected)
        index["groups"] = list_units(images, decided.assignment.rule)
    return index


def _rearrange(facts: list[PlanFacts], report: Report, job: IngestJob, write: WritePlans) -> Report:
    """Rewrite the plans whose shards do not hold what they should; report on all again."""
    total = sum(len(facts[number].facts) for number in report.misplaced)
    again = dataclasses.replace(job, total=total, unread=0, again=True)
    write_plans(job.examples_uri, [plan.plan for plan in facts], report.misplaced)
    write(report.misplaced, again)
    for number in report.misplaced:
        plan = facts[number].plan
        facts[number] = read_facts(plan_path(job.examples_uri, plan), plan)
    return report_on(facts, job.assignment)


class WriteShards(ConcurrentDoFn):
    """Writes the shards of each plan, and what is known of its files.

    Beam moves only the numbers of plans; an image never leaves its thread or process.
    """

    def __init__(self, job: IngestJob) -> None:
        """Write plans of `job`."""
        super().__init__(job.config.workers)
        self._job = job

    def setup(self) -> None:
        """Choose between threads and processes."""
        self._processes: PlanProcesses | None = None
        if needs_processes(self._job):
            self._processes = PlanProcesses(self._job)

    def work(self, number: int) -> None:
        """Write the plan with this number."""
        if self._processes:
            self._processes.write_plan(number)
        else:
            write_plan(number, self._job)

    def teardown(self) -> None:
        """End the processes."""
        if self._processes:
            self._processes.close()

"""The work of ingest: check the files of a shard, write it, and account for every file."""

from __future__ import annotations

import collections
import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import apache_beam as beam
import tensorflow as tf

from components.errors import UserError
from components.example import make_example
from components.image_check import Rejected, check_image, read_file
from components.ingest_config import IngestConfig
from components.listing import ImageFile, Listing, open_folder
from components.progress import add_progress
from components.shards import UNFINISHED, ShardPlan, open_shard, shard_path, split_of_content

REJECTS_FILE = "rejects.jsonl"
REJECTS_SUMMARY_FILE = "summary.json"

# Images checked ahead of the writer: keeps the threads busy, bounds the memory of one worker.
_READ_AHEAD = 64
_NAMED_REJECTS = 3

# The split and the serialized record of a file, or why there is none.
_Outcome = tuple[str, bytes] | Rejected


@dataclass(frozen=True)
class Report:
    """What became of the files of one plan."""

    plan: ShardPlan
    labels: dict[str, dict[str, int]]
    """Split → label → examples."""
    rejects: list[dict[str, str]]

    @property
    def examples(self) -> int:
        """Their number, over all splits."""
        return sum(sum(labels.values()) for labels in self.labels.values())


class WriteShards(beam.DoFn):
    """Reads and checks the files of a plan; writes one shard per split and a report of it."""

    def __init__(self, folder: str, examples_uri: str, config: IngestConfig, total: int) -> None:
        """Read below `folder`, write below `examples_uri`; there are `total` files in all."""
        self._folder = folder
        self._examples_uri = examples_uri
        self._config = config
        self._total = total

    def process(self, plan: ShardPlan) -> Iterator[None]:
        """Write the shards of `plan`; yields nothing, the report is a file."""
        labels: dict[str, collections.Counter[str]] = {}
        rejects: list[dict[str, str]] = []
        with contextlib.ExitStack() as stack:
            writers: dict[str, tf.io.TFRecordWriter] = {}
            for file, outcome in self._check_all(plan):
                if isinstance(outcome, Rejected):
                    reject = {"path": file.path, "category": outcome.category.value}
                    rejects.append({**reject, "reason": str(outcome)})
                    continue
                split, record = outcome
                if split not in writers:
                    path = shard_path(self._examples_uri, split, plan.index, plan.count)
                    writers[split] = stack.enter_context(open_shard(path))
                    labels[split] = collections.Counter()
                writers[split].write(record)
                labels[split][file.label] += 1
        _write_report(self._examples_uri, plan, labels, rejects)
        yield from ()

    def _check_all(self, plan: ShardPlan) -> Iterator[tuple[ImageFile, _Outcome]]:
        """Yield the split and the record of each file, in order, checked by several threads."""
        fs, root = open_folder(self._folder)

        def check(file: ImageFile) -> _Outcome:
            try:
                return self._record(
                    file, read_file(fs, f"{root}/{file.path}", file.size, self._config)
                )
            except Rejected as rejected:
                return rejected

        with ThreadPoolExecutor(self._config.threads) as pool:
            waiting: collections.deque[tuple[ImageFile, Future[_Outcome]]] = collections.deque()
            for file in plan.files:
                waiting.append((file, pool.submit(check, file)))
                if len(waiting) == _READ_AHEAD:
                    yield self._take(waiting)
            while waiting:
                yield self._take(waiting)

    def _take(
        self, waiting: collections.deque[tuple[ImageFile, Future[_Outcome]]]
    ) -> tuple[ImageFile, _Outcome]:
        """Wait for the oldest of the files that are being checked."""
        file, future = waiting.popleft()
        outcome = future.result()
        add_progress(self._examples_uri, 1, total=self._total, unit="images")
        return file, outcome

    def _record(self, file: ImageFile, data: bytes) -> tuple[str, bytes]:
        image = check_image(data, self._config)
        sha256 = hashlib.sha256(data).hexdigest()
        example = make_example(
            encoded=image.encoded,
            image_format=image.format,
            height=image.height,
            width=image.width,
            filename=file.path,
            sha256=sha256,
            label=file.label,
        )
        split = file.split or split_of_content(sha256, self._config.splits)
        return split, example.SerializeToString(deterministic=True)


def _report_path(examples_uri: str, plan: ShardPlan) -> str:
    return os.path.join(examples_uri, UNFINISHED, f"report-{plan.group}-{plan.index:05d}.json")


def _write_report(
    examples_uri: str,
    plan: ShardPlan,
    labels: dict[str, collections.Counter[str]],
    rejects: list[dict[str, str]],
) -> None:
    """Keep what a worker found where the executor reads it, on whatever runner Beam has."""
    tf.io.gfile.makedirs(os.path.join(examples_uri, UNFINISHED))
    with tf.io.gfile.GFile(_report_path(examples_uri, plan), "w") as file:
        file.write(json.dumps({"labels": labels, "rejects": rejects}))


def read_report(examples_uri: str, plan: ShardPlan) -> Report:
    """Read what became of the files of `plan`."""
    with tf.io.gfile.GFile(_report_path(examples_uri, plan)) as file:
        return Report(plan=plan, **json.loads(file.read()))


def write_rejects(rejects_uri: str, reports: Sequence[Report], listing: Listing) -> None:
    """Write one line per rejected file, in path order, and the counts by category."""
    rejects = sorted((r for report in reports for r in report.rejects), key=lambda r: r["path"])
    for reject in rejects:
        # TFX removes the outputs of a node that fails; the log then still has the list.
        logging.warning("Rejected %(path)s: %(category)s, %(reason)s", reject)
    tf.io.gfile.makedirs(rejects_uri)
    with tf.io.gfile.GFile(os.path.join(rejects_uri, REJECTS_FILE), "w") as file:
        for reject in rejects:
            file.write(json.dumps(reject) + "\n")
    categories = collections.Counter(reject["category"] for reject in rejects)
    summary = {
        "files": len(listing.files) + len(listing.skipped),
        "examples": sum(report.examples for report in reports),
        "rejected": len(rejects),
        "skipped": len(listing.skipped),
        "rejected_by_category": dict(sorted(categories.items())),
    }
    with tf.io.gfile.GFile(os.path.join(rejects_uri, REJECTS_SUMMARY_FILE), "w") as file:
        file.write(json.dumps(summary, indent=1))


def check_reports(reports: Sequence[Report], listing: Listing, config: IngestConfig) -> None:
    """Raise unless every file is accounted for, few are rejected, and train has every class."""
    rejects = [reject for report in reports for reject in report.rejects]
    files, examples = len(listing.files), sum(report.examples for report in reports)
    if files != examples + len(rejects):
        raise RuntimeError(f"{files} files became {examples} examples and {len(rejects)} rejects")
    if len(rejects) > config.max_reject_fraction * files:
        named = "; ".join(f"{r['path']} ({r['category']})" for r in rejects[:_NAMED_REJECTS])
        raise UserError(
            f"{len(rejects) if examples else 'All'} of {files} files in {listing.root} are not "
            f"usable images, such as {named}: repair or remove them, or raise "
            f"ingest.max_reject_fraction above {config.max_reject_fraction:g}."
        )
    _check_splits(labels_per_split(reports), listing.root)


def _check_splits(found: Mapping[str, Mapping[str, int]], root: str) -> None:
    for split in ("train", "eval"):
        if split not in found:
            raise UserError(
                f"No image of {root} falls into the {split} split: add images, or sort them into "
                f"train and eval folders."
            )
    untrained = sorted(set().union(*found.values()) - found["train"].keys())
    if untrained:
        raise UserError(
            f"Class {untrained[0]!r} of {root} has no usable image to train on: add images, or "
            f"remove the class."
        )


def labels_per_split(reports: Sequence[Report]) -> dict[str, collections.Counter[str]]:
    """Count the examples: split → label → examples."""
    found: dict[str, collections.Counter[str]] = {}
    for report in reports:
        for split, labels in report.labels.items():
            found.setdefault(split, collections.Counter()).update(labels)
    return found


def records_per_shard(reports: Sequence[Report]) -> dict[str, dict[str, int]]:
    """Count the records: split → shard file name → records."""
    splits: dict[str, dict[str, int]] = {}
    for report in reports:
        for split, labels in report.labels.items():
            name = os.path.basename(shard_path("", split, report.plan.index, report.plan.count))
            splits.setdefault(split, {})[name] = sum(labels.values())
    return splits

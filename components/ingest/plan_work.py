"""Write one plan: read and check its files, write its shards, and report on every file."""

from __future__ import annotations

import collections
import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from components.contract import example
from components.contract.progress import add_progress
from components.images.check import check_image
from components.images.check_result import Category, CheckedImage, Rejected, usable
from components.ingest.config import IngestConfig
from components.ingest.ingest_report import PlanReport, write_report
from components.ingest.listing import ImageFile
from components.ingest.shard_plan import read_plan
from components.ingest.stratification import SplitRule
from components.records.shard_files import open_shard, shard_path
from components.records.tfrecord import RecordWriter, Value, serialize
from components.storage.fetch import Content, read_files


@dataclass(frozen=True)
class IngestJob:
    """What all plans of a run share."""

    folder: str
    """Path or URL of the images."""
    examples_uri: str
    """Path or URL of the shards."""
    config: IngestConfig
    rule: SplitRule
    """Decides the split of each image."""
    total: int
    """Number of files of all plans."""
    dropped: frozenset[str] = frozenset()
    """SHA-256 digests of images to reject because they have several labels."""
    attempt: int = 1
    """Number of the pass over the files, from 1."""

    def count(self, files: int) -> None:
        """Report further finished files of this process."""
        # A second pass counts from 0.
        task = f"{self.examples_uri} {self.attempt}"
        add_progress(task, files, total=self.total, unit="images")


def write_plan(number: int, job: IngestJob, count: Callable[[int], None] | None = None) -> None:
    """Read and check the files of a plan; write one shard per split, and a report.

    Args:
        number: number of the plan in the file of plans.
        job: job of the plan.
        count: called with the number of further finished files; None: `job.count`.
    """
    plan = read_plan(job.examples_uri, number)
    count = count or job.count
    labels: dict[str, collections.Counter[str]] = {}
    rejects: list[dict[str, str]] = []
    digests: list[str] = []
    with contextlib.ExitStack() as stack:
        writers: dict[str, RecordWriter] = {}
        for file, content in read_files(job.folder, plan.files, job.config):
            try:
                image, sha256 = _check(content, job)
            except Rejected as rejected:
                reject = {"path": file.path, "category": rejected.category.value}
                rejects.append({**reject, "reason": str(rejected)})
                digests.append("")
            else:
                split = job.rule.split_of(file, sha256)
                if split not in writers:
                    path = shard_path(job.examples_uri, split, plan.index, plan.count)
                    writers[split] = stack.enter_context(open_shard(path))
                    labels[split] = collections.Counter()
                writers[split].write(serialize(_features(file, image, sha256)))
                labels[split][file.label] += 1
                digests.append(sha256)
            count(1)
    write_report(job.examples_uri, PlanReport(plan, labels, rejects, digests))


def _check(content: Content, job: IngestJob) -> tuple[CheckedImage, str]:
    """Return the image of a file and the digest of its content, or raise `Rejected`."""
    content = usable(content)
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 in job.dropped:
        raise Rejected(Category.LABEL_CONFLICT, "the same image also has another label")
    return check_image(content, job.config), sha256


def _features(file: ImageFile, image: CheckedImage, sha256: str) -> dict[str, Value]:
    features: dict[str, Value] = {
        example.ENCODED: image.encoded,
        example.FORMAT: image.format,
        example.HEIGHT: image.height,
        example.WIDTH: image.width,
        example.CHANNELS: image.channels,
        example.FILENAME: file.path,
        example.FILE_SIZE: file.size,
        example.SHA256: sha256,
        example.LABEL: file.label,
    }
    if image.luminance is not None:
        features[example.LUMINANCE] = image.luminance
    return features

"""Write the shards of a plan, from its files or from records that earlier shards hold."""

import contextlib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from components.contract import example
from components.contract.artifact_files import remove
from components.contract.errors import StorageError
from components.host.progress import add_progress
from components.images.check import check_image, usable
from components.images.check_result import CheckedImage, Rejected
from components.ingest.config import IngestConfig
from components.ingest.datasets.reading import read_images
from components.ingest.plan.assignment import Assignment
from components.ingest.plan.facts import (
    NO_PICTURE,
    Fact,
    PlanFacts,
    plan_path,
    read_facts,
    read_pictures,
    write_facts,
    write_pictures,
)
from components.ingest.plan.shard_plan import ShardPlan, is_unchanged, read_plan
from components.ingest.source.listing import ImageFile
from components.records.shard_files import open_shard, shard_path
from components.records.tfrecord import RecordWriter, Value, frame, read_frames, serialize
from components.storage.fetch import Content, Unread

# Bytes at the end of a record that almost always hold all but the image.
_BEHIND_IMAGE = 2**12


@dataclass(frozen=True)
class IngestJob:
    """What all plans of a run share."""

    folder: str
    """Path or URL of the images."""
    examples_uri: str
    """Path or URL of the shards."""
    config: IngestConfig
    assignment: Assignment
    total: int
    """Number of files of all plans."""
    unread: int
    """Number of these files of which no earlier plan knows."""
    earlier: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """Number of a plan → the plans of an earlier ingest that had files of it, see `plan_path`."""
    for_tensorflow: bool = False
    """Whether only TensorFlow decodes most of these files, as far as their names tell."""
    again: bool = False
    """Whether the plans have been written, but not all images are where they belong."""

    def count(self, files: int) -> None:
        """Report further finished files of this process."""
        # A second pass counts from 0.
        task = f"{self.examples_uri} {self.again}"
        add_progress(task, files, total=self.total, unit="images")


_Framed = Sequence[bytes | memoryview]
"""Parts of a record with its length and checksum."""


class _Known(NamedTuple):
    """What an earlier plan knows of a file."""

    fact: Fact
    record: memoryview | None
    """With its frame."""
    picture: bytes


def write_plan(number: int, job: IngestJob, count: Callable[[int], None] | None = None) -> None:
    """Read and check the files of a plan; write one shard per split, and what is known of each.

    `count`, by default `job.count`, is called with the number of further finished files.
    """
    plan, count = read_plan(job.examples_uri, number), count or job.count
    if job.again:
        folder = plan_path(job.examples_uri, plan)
        before = read_facts(folder)
        sizes = _write(plan, job, _find_known([folder], plan, job), count)
        for split in before.sizes.keys() - sizes.keys():
            remove(shard_path(job.examples_uri, split, plan.index, plan.count))
        return
    try:
        _write(plan, job, _find_known(job.earlier.get(number, ()), plan, job), count)
    except (StorageError, FileNotFoundError):
        if number not in job.earlier:
            raise
        _write(plan, job, {}, count)


def _find_known(paths: Sequence[str], plan: ShardPlan, job: IngestJob) -> dict[str, _Known]:
    """Find the files of a plan, by path, that plans at `paths` have read, with their records."""
    files = {file.path: file for file in plan.files}
    known = {}
    for path in paths:
        before = read_facts(path)
        shards = before.plan.shards(path.rpartition("/")[0].rpartition("/")[0], before.sizes)
        readers = {split: read_frames(shard) for split, shard in shards.items()}
        rows = read_pictures(path) if job.config.finds_near_duplicates else None
        for number, (file, fact) in enumerate(zip(before.plan.files, before.facts, strict=True)):
            record = next(readers[fact.split], None) if fact.split else None
            now = files.get(file.path)
            # What could not be read when all was decided stays rejected in a second pass.
            if now and (fact.sha256 or job.again) and is_unchanged(now, file):
                picture = b"" if rows is None else rows[number].tobytes()
                known[file.path] = _Known(fact, record, picture)
    return known


def _is_enough(file: ImageFile, known: _Known | None, job: IngestJob) -> bool:
    """Return whether a file need not be read."""
    if known is None:
        return False
    place = job.assignment.place(file, known.fact)
    if not place.split:
        return True
    # Whether an image without a record gets one may depend on all other images.
    return known.fact.label == place.label if known.record is not None else not job.again


def _write(
    plan: ShardPlan, job: IngestJob, known: Mapping[str, _Known], count: Callable[[int], None]
) -> dict[str, int]:
    kept = {f.path: known[f.path] for f in plan.files if _is_enough(f, known.get(f.path), job)}
    unread = [file for file in plan.files if file.path not in kept]
    contents = read_images(job.folder, unread, job.config)
    facts, pictures = [], bytearray()
    with contextlib.ExitStack() as stack:
        writers: dict[str, RecordWriter] = {}
        for file in plan.files:
            if file.path in kept:
                fact, record, picture = _keep(file, kept[file.path], job)
            else:
                fact, record, picture = _read(*next(contents), job)
            if record:
                if fact.split not in writers:
                    shard = shard_path(job.examples_uri, fact.split, plan.index, plan.count)
                    writers[fact.split] = stack.enter_context(open_shard(shard))
                writers[fact.split].append(record)
            facts.append(fact)
            pictures += picture
            count(1)
    if job.config.finds_near_duplicates:
        write_pictures(job.examples_uri, plan, pictures)
    sizes = {split: writers[split].position for split in sorted(writers)}
    write_facts(job.examples_uri, PlanFacts(plan, facts, sizes))
    return sizes


def _keep(file: ImageFile, known: _Known, job: IngestJob) -> tuple[Fact, _Framed, bytes]:
    """Return what is known of a file, and its record unless it is rejected.

    With its frame, as a new checksum would hide damage.

    Raises:
        StorageError: the record is another image's.
    """
    fact = known.fact
    place = job.assignment.place(file, fact)
    if not place.split or known.record is None:
        return fact._replace(split="", label=""), (), known.picture
    # Beam may repeat a plan whose shards have been written, but not its facts.
    digest = fact.sha256.encode()
    if digest not in bytes(known.record[-_BEHIND_IMAGE:]) and digest not in bytes(known.record):
        raise StorageError(f"The shards of {file.path} are not its own: run again.")
    # Most images stay where they were once all were known.
    split = place.split if job.again or file.split else fact.split
    return fact._replace(split=split), (known.record,), known.picture


def _read(file: ImageFile, content: Content, job: IngestJob) -> tuple[Fact, _Framed, bytes]:
    """Check the content of a file; return what is known of it, and its record if it is usable."""
    sha256 = "" if isinstance(content, Unread) else hashlib.sha256(content).hexdigest()
    try:
        image = check_image(usable(content), job.config)
    except Rejected as rejected:
        return Fact(sha256, rejected.category.value, str(rejected)), (), NO_PICTURE
    place = job.assignment.place(file, Fact(sha256))
    fact = Fact(sha256, split=place.split, label=place.label, notes=image.notes)
    features = _features(file._replace(label=place.label), image, sha256)
    record = frame(serialize(features)) if place.split else ()
    return fact, record, picture_row(image)


def picture_row(image: CheckedImage) -> bytes:
    """Return the picture of an image, and the shorter side of the image."""
    side = min(image.height, image.width, 255)
    return image.thumbprint + bytes([side]) if image.thumbprint else NO_PICTURE


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
    return features | {example.COLUMNS + name: value for name, value in file.columns.items()}

"""`local_runner.py review --apply-to COPY`: a copy of a folder of images with corrected labels."""

import collections
import contextlib
import dataclasses
import functools
import hashlib
import os
import posixpath
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from components.contract.artifact_files import on_disk
from components.contract.configuration import from_dict
from components.contract.errors import ConfigurationError, DataError
from components.contract.example import TRAIN
from components.contract.printable import describe_corrections, quote
from components.ingest.config import IngestConfig
from components.ingest.lookup import list_images
from components.ingest.plan.shard_plan import path_hash
from components.ingest.source.corrections import CorrectionOutcome, choose_labels, judge
from components.ingest.source.listing import ImageFile, Listing
from components.storage.fetch import Unread, read_files
from components.storage.folder import explaining_errors
from pipeline_def.apps.review.options import ReviewOptions
from pipeline_def.local.output.folder import open_output
from pipeline_def.local.run_display import list_rows, print_row, print_whole
from pipeline_def.runs.history import find_run

_NAMED = 5


@dataclass(frozen=True)
class CorrectedCopy:
    """What was copied."""

    files: int
    outcomes: tuple[CorrectionOutcome, ...]
    """What became of each correction."""
    unread: tuple[str, ...]
    """Paths and reasons of files that could not be read."""
    skipped: int
    """Number of files that are not images with a label."""
    has_groups: bool
    """Whether the images have groups, which a folder cannot hold."""


def apply_to(target: str, options: ReviewOptions) -> None:
    """Copy the images of a run with the corrections that were made, and print what became of them.

    Raises:
        UserError: there is no such run or corrections file, or see `write_corrected_copy`.
    """
    folder, ingest, corrections = _find_images(options)
    print_whole("Images", folder)
    print_whole("Corrections", corrections)
    copied = write_corrected_copy(folder, ingest, corrections=corrections, target=target)
    counts = collections.Counter(outcome.result for outcome in copied.outcomes)
    print_row("", describe_corrections(counts))
    missed = [
        f"{outcome.correction.path}: {outcome.reason}"
        for outcome in copied.outcomes
        if outcome.reason
    ]
    for title, texts in (("Not applied", missed), ("Not copied", copied.unread)):
        for row in list_rows(title, texts, _NAMED):
            print_row(*row)
    skipped = f"; {copied.skipped:,} files skipped" if copied.skipped else ""
    print_whole("Copy", f"{target}, {copied.files:,} files{skipped}")
    if copied.has_groups:
        text = "the copy has no groups, so images of one group may fall into several splits"
        print_row("Note", f"{text}: train on the images with --ingest.corrections instead")


def _find_images(options: ReviewOptions) -> tuple[str, IngestConfig, str]:
    """Return the folder of a run, how to ingest it, and the corrections file."""
    output = open_output(options.output).folder
    run = find_run(output, lambda run: run.data.folder, missing="has ingested images")
    recorded = run.record.configuration.get("ingest", {})
    # Earlier versions had more options, and more ways to treat near duplicates, which are copied.
    known = {field.name for field in dataclasses.fields(IngestConfig)} & recorded.keys()
    ingest = from_dict(IngestConfig, {key: recorded[key] for key in known - {"near_duplicates"}})
    return run.record.data.folder, ingest, options.find_corrections(run)


def write_corrected_copy(
    folder: str, config: IngestConfig, *, corrections: str, target: str
) -> CorrectedCopy:
    """Copy the images of `folder`, a path or URL, to `target/[split/]label/…` on this machine.

    The labels are as corrected, and removed images are left out. The copy appears complete or not
    at all; nothing else is written.

    Raises:
        ConfigurationError: `target` is not empty, or lies in `folder`.
        DataError: a label cannot be the name of a folder.
        UserError: images or corrections cannot be read, or the copy cannot be written.
    """
    if config.window is not None:
        raise ConfigurationError(
            "--apply-to copies one folder, but the run read a window of spans: apply the "
            "corrections in a run, with --ingest.corrections."
        )
    target = os.path.realpath(target)
    _check_target(target, folder)
    listing = list_images(folder, dataclasses.replace(config, corrections=corrections))
    if any(file.shard for file in listing.files[:1]):
        raise ConfigurationError(
            f"--apply-to copies image files, but {folder} has shards: apply the corrections in a "
            f"run, with --ingest.corrections."
        )
    with _whole_folder(target) as unfinished:
        return _copy(listing, config, unfinished)


def _check_target(target: str, folder: str) -> None:
    """Raise `ConfigurationError` unless `target` is a new or an empty folder outside `folder`."""
    if on_disk(folder):
        source = os.path.realpath(folder)
        if os.path.commonpath((source, target)) == source:
            raise ConfigurationError(
                f"--apply-to {target} lies in the folder of images, {source}: choose a place "
                f"outside of it."
            )
    if os.path.lexists(target) and not (os.path.isdir(target) and not os.listdir(target)):
        raise ConfigurationError(f"--apply-to {target} exists: name a new or an empty folder.")


def _copy(listing: Listing, config: IngestConfig, target: str) -> CorrectedCopy:
    """Copy all files but those to remove, each read once.

    Files with corrections wait aside until all are known, and follow those that keep their names.
    """
    watched = {row.sha256 for row in listing.corrections.rows}
    aside: list[tuple[ImageFile, str, str]] = []
    unread: list[str] = []
    copied = 0
    # Images of a manifest that a hash divides must not mix with those of its splits.
    has_splits = listing.layout == "manifest" and any(file.split for file in listing.files)
    find_place = functools.partial(_find_place, listing, target, has_splits=has_splits)
    for file, content in read_files(listing.root, listing.files, config):
        if isinstance(content, Unread):
            unread.append(f"{file.path}: {content.reason}")
            continue
        if (sha256 := hashlib.sha256(content).hexdigest()) in watched:
            place = os.path.join(target, f".{len(aside)}")
            aside.append((file, sha256, place))
        else:
            place, copied = find_place(file, file.label), copied + 1
        with open(place, "xb") as copy:
            copy.write(content)
    given, known = listing.corrections, listing.labels()
    now: dict[str, list[tuple[str, str]]] = {}
    for file, sha256, _ in aside:
        now.setdefault(sha256, []).append((file.label, ""))
    outcomes, outdated = judge(given, known, now)
    chosen = choose_labels(given, known)
    labels = {digest: chosen[digest] for digest in chosen.keys() - outdated}
    for file, sha256, place in sorted(aside, key=lambda item: item[1] in labels):
        if (label := labels.get(sha256, file.label)) is None:
            os.remove(place)
        else:
            os.replace(place, find_place(file, label))
            copied += 1
    has_groups = listing.tally.has_groups
    return CorrectedCopy(copied, tuple(outcomes), tuple(unread), len(listing.skipped), has_groups)


def _find_place(
    listing: Listing, target: str, file: ImageFile, label: str, *, has_splits: bool
) -> str:
    """Return a new path for a file of this label in the copy, and make its folder."""
    if label.startswith(".") or "/" in label:
        raise DataError(f"The label {quote(label)} cannot be the name of a folder.")
    parts = [part for part in posixpath.normpath(file.path).split("/") if part not in ("", "..")]
    if listing.layout == "manifest":
        parts = [*([file.split or TRAIN] if has_splits else []), label, *parts]
    else:
        parts[1 if listing.layout == "split" else 0] = label
    place = os.path.join(target, *parts)
    if os.path.exists(place):
        # Another image of the new label has the same name.
        stem, extension = os.path.splitext(place)
        place = f"{stem}-{path_hash(file).hex()[:12]}{extension}"
    os.makedirs(os.path.dirname(place), exist_ok=True)
    return place


@contextlib.contextmanager
def _whole_folder(target: str) -> Iterator[str]:
    """Yield a folder that becomes `target` at the end; nothing is left after an error.

    Raises:
        StorageError: the disk is full, or a file cannot be written.
    """
    unfinished = f"{target}.{uuid.uuid4().hex}"
    try:
        with explaining_errors("write", target):
            os.makedirs(unfinished)
            yield unfinished
            os.replace(unfinished, target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)

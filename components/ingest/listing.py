"""List the images of a folder with their labels and splits, and fingerprint the listing."""

from __future__ import annotations

import collections
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from components.contract.errors import DataError
from components.contract.example import is_split_name
from components.ingest.config import IngestConfig
from components.ingest.layout_errors import (
    explain_archive,
    explain_no_labels,
    explain_one_class,
    is_archive,
)
from components.ingest.manifest import Row, read_manifest
from components.ingest.spans import find_span
from components.ingest.splits import choose_splits
from components.storage.folder import MISSING, Found, explain_ignored, find_files

SPLIT_OF_FOLDER = {
    "train": "train",
    "training": "train",
    "eval": "eval",
    "val": "eval",
    "valid": "eval",
    "validation": "eval",
    "dev": "eval",
    "test": "test",
    "testing": "test",
}
"""Common names of split folders → the split of the pipeline."""


class ImageFile(NamedTuple):
    """A listed file that may be an image; it has not been read."""

    path: str
    """Path relative to the folder, with "/" between its parts."""
    label: str
    split: str | None
    """None if a hash of the content, or of the group, decides."""
    size: int
    """Bytes."""
    version: str
    """Changes when the content does: times of a local file, or the store's own tag."""
    group: str | None = None
    """Files of a group, such as the frames of a film, fall into the same split."""
    checksum: str = ""
    """Kind, such as "md5:", and value; empty if there is none."""


class Skipped(NamedTuple):
    """A file that is not read."""

    path: str
    reason: str


@dataclass(frozen=True)
class Listing:
    """All files below a folder: the candidates in path order, and the skipped ones."""

    root: str
    """The folder as given."""
    files: tuple[ImageFile, ...]
    skipped: tuple[Skipped, ...]
    fractions: Mapping[str, float]
    """Split → its fraction of the files without a given split."""
    note: str = ""
    """Warning about the splits; may be empty."""

    def labels_per_split(self) -> dict[str | None, collections.Counter[str]]:
        """Count the files of each label in each split."""
        counts: dict[str | None, collections.Counter[str]] = {}
        for file in self.files:
            counts.setdefault(file.split, collections.Counter())[file.label] += 1
        return counts

    def expected(self, split: str) -> int:
        """Return about how many images `split` will have once hashes have divided the others."""
        named = sum(file.split == split for file in self.files)
        hashed = sum(file.split is None for file in self.files)
        return named + round(hashed * self.fractions.get(split, 0))

    def fingerprint(self) -> str:
        """Digest the relative paths, labels, splits, sizes and contents of all files.

        The checksum stands for the content, or else the version.

        TFX's own fingerprint, the number of files, their bytes and the newest modification time,
        stays the same when an image moves to another label folder.
        """
        digest = hashlib.sha256()
        for file in self.files:
            content = file.checksum or file.version
            fields = (file.path, file.label, file.split, file.group, file.size, content)
            digest.update(repr(fields).encode("utf-8", "surrogateescape") + b"\n")
        return f"files:{len(self.files)},sha256:{digest.hexdigest()}"


def list_source(data: str, config: IngestConfig) -> Listing:
    """List the folder, or the span, that the pipeline's `data` currently refers to."""
    return list_images(find_span(data, config.span).folder, config.manifest, config.splits)


def list_images(
    folder: str, manifest: str | None = None, fractions: Mapping[str, float] | None = None
) -> Listing:
    """List `folder`, laid out as `label/…/file` or `split/label/…/file`, or as `manifest` says.

    The top-level folders are splits if all are named after a split and one of them is `train`.

    Args:
        folder: path or URL.
        manifest: path or URL of a table of paths and labels.
        fractions: fractions of the splits; None: `choose_splits` chooses them.

    Raises:
        DataError: the folder does not exist, or has no labels.
    """
    if is_archive(folder) and os.path.isfile(folder):
        raise DataError(explain_archive(folder))
    found = find_files(folder)
    rows = read_manifest(manifest) if manifest else None
    skipped = {entry.path: reason for entry in found if (reason := explain_ignored(entry))}
    visible = [entry for entry in found if entry.path not in skipped]
    files, unlabelled = _by_folder(visible) if rows is None else _by_manifest(visible, rows)
    if not files:
        loose = [entry.path for entry in visible if "/" not in entry.path]
        raise DataError(explain_no_labels(folder, loose))
    skipped |= unlabelled
    files = _bind_groups(files)
    choice = choose_splits(collections.Counter(file.split for file in files), fractions)
    return Listing(
        folder,
        tuple(sorted(file._replace(split=choice.splits[file.split]) for file in files)),
        tuple(Skipped(entry.path, skipped[entry.path]) for entry in found if entry.path in skipped),
        choice.fractions,
        choice.note,
    )


def _bind_groups(files: list[ImageFile]) -> list[ImageFile]:
    """Give all files of a group the split that is given for one of them.

    Raises:
        DataError: a group has several splits.
    """
    splits: dict[str | None, str] = {}
    for file in files:
        if file.group is not None and file.split is not None:
            other = splits.setdefault(file.group, file.split)
            if other != file.split:
                raise DataError(
                    f"Group {file.group!r} is in the splits {other} and {file.split}: all images "
                    f"of a group belong to one split; {file.path} is one of them."
                )
    return [file._replace(split=splits.get(file.group, file.split)) for file in files]


def _by_folder(entries: list[Found]) -> tuple[list[ImageFile], dict[str, str]]:
    """Label files by their folders; return them, and the reason for each other file."""
    top_level = {path.split("/")[0] for path, *_ in entries if "/" in path}
    splits = {name: SPLIT_OF_FOLDER.get(name.lower(), "") for name in top_level}
    if "train" not in splits.values() or "" in splits.values():
        splits = {}
    depth = 1 if splits else 0
    files: list[ImageFile] = []
    unlabelled: dict[str, str] = {}
    for path, _, size, version, checksum in entries:
        parts = path.split("/")
        if len(parts) < depth + 2 or not parts[depth]:
            unlabelled[path] = "in no label folder"
            continue
        split = splits[parts[0]] if splits else None
        files.append(ImageFile(path, parts[depth], split, size, version, None, checksum))
    return files, unlabelled


def _by_manifest(
    entries: list[Found], rows: Mapping[str, Row]
) -> tuple[list[ImageFile], dict[str, str]]:
    """Label files by the manifest; ingest later rejects files that do not exist."""
    found = {entry.path: entry for entry in entries}
    names = sorted({row.split for row in rows.values() if row.split})
    for name in names:
        if not is_split_name(name):
            raise DataError(
                f"The manifest has a split named {name!r}: use only letters, digits, - and _."
            )
    splits = {name: SPLIT_OF_FOLDER.get(name.lower(), name) for name in names}
    files = []
    for path, (label, split, group) in rows.items():
        _, _, size, version, checksum = found.get(path, Found(path, "", 0, MISSING, ""))
        split = splits[split] if split else None
        files.append(ImageFile(path, label, split, size, version, group, checksum))
    return files, dict.fromkeys(found.keys() - rows.keys(), "not in the manifest")


def check_labels(listing: Listing) -> None:
    """Raise `DataError` unless there are two labels, and each split has images of every label."""
    counts = listing.labels_per_split()
    labels = sorted(set().union(*counts.values()))
    if len(labels) < 2:
        paths = (file.path for file in listing.files)
        raise DataError(explain_one_class(listing.root, labels[0], paths))
    for label in labels:
        # The vocabulary is a text file with one label per line; surrogates are invalid UTF-8.
        if any(character in "\n\r" or "\ud800" <= character <= "\udfff" for character in label):
            raise DataError(
                f"The label {label!r} is not one line of UTF-8 text: rename its folder, or fix the "
                f"manifest."
            )
    for split, of_split in counts.items():
        if missing := [label for label in labels if label not in of_split]:
            others = f" and {len(missing) - 1} more" if missing[1:] else ""
            raise DataError(
                f"Split {split!r} of {listing.root} has no images of class {missing[0]!r}{others}: "
                f"add some, or remove the class from every split."
            )

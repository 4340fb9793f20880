"""Which files a folder of images holds: their label, their split, and a fingerprint of them all."""

from __future__ import annotations

import collections
import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from components.contract.errors import DataError
from components.contract.example import is_split_name
from components.ingest.config import IngestConfig
from components.ingest.layout_mistakes import (
    explain_archive,
    explain_no_labels,
    explain_one_class,
    is_archive,
)
from components.ingest.manifest import Row, read_manifest
from components.ingest.spans import find_span
from components.ingest.splits import choose_splits
from components.storage.folder import MISSING, Found, explain_ignored, find_files

# Names that people give to the folders of a split, and the split of the pipeline they mean.
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


class ImageFile(NamedTuple):
    """One candidate file, as the listing saw it; nothing of it has been read."""

    path: str
    """Relative to the folder, with "/" between its parts."""
    label: str
    split: str | None
    """None when the split follows from the hash of the content, or of the group."""
    size: int
    """Bytes."""
    version: str
    """Changes when the content does: modification time in nanoseconds, or the store's own tag."""
    group: str | None = None
    """Files of a group, such as the frames of one film, fall into the same split."""
    checksum: str = ""
    """"crc32c:" or "md5:" and base64, where the store's listing has one."""


class Skipped(NamedTuple):
    """A file that is not taken for an image."""

    path: str
    reason: str


@dataclass(frozen=True)
class Listing:
    """All files below a folder: the candidates, in path order, and those left out."""

    root: str
    """The folder as it was given."""
    files: tuple[ImageFile, ...]
    skipped: tuple[Skipped, ...]
    fractions: Mapping[str, float]
    """Split → its fraction of the files whose split follows from a hash."""
    note: str = ""
    """What a person should know about the splits; empty if nothing."""

    def labels_per_split(self) -> dict[str | None, collections.Counter[str]]:
        """Count the files of each label in each split."""
        counts: dict[str | None, collections.Counter[str]] = {}
        for file in self.files:
            counts.setdefault(file.split, collections.Counter())[file.label] += 1
        return counts

    def expected(self, split: str) -> int:
        """Return about how many images `split` will have: hashes divide those without a split."""
        named = sum(file.split == split for file in self.files)
        hashed = sum(file.split is None for file in self.files)
        return named + round(hashed * self.fractions.get(split, 0))

    def fingerprint(self) -> str:
        """Digest relative paths, labels, splits, sizes and versions of all files.

        TFX's own fingerprint is the number of files, their bytes and the newest modification
        time, which stays the same when an image moves to another label folder.
        """
        digest = hashlib.sha256()
        for file in self.files:
            fields = (file.path, file.label, file.split, file.group, file.size, file.version)
            digest.update(repr(fields).encode("utf-8", "surrogateescape") + b"\n")
        return f"files:{len(self.files)},sha256:{digest.hexdigest()}"


def list_source(data: str, config: IngestConfig) -> Listing:
    """List the folder, or the span, that the pipeline's `data` and `ingest` mean now.

    Raises:
        DataError: as `list_images`, or no folder matches.
    """
    return list_images(find_span(data, config.span).folder, config.manifest, config.splits)


def list_images(
    folder: str, manifest: str | None = None, fractions: Mapping[str, float] | None = None
) -> Listing:
    """List `folder`, laid out as `label/…/file` or `split/label/…/file`, or as `manifest` says.

    The split layout is taken when every top-level folder is named after a split and one of them
    is `train`. Sorted by path, so that the same folder always gives the same listing.

    Args:
        folder: path or URL.
        manifest: table of paths and labels, a path or URL.
        fractions: of the splits, where `choose_splits` is not to choose them.

    Raises:
        DataError: the folder does not exist, or holds nothing that could be labelled.
    """
    if is_archive(folder) and os.path.isfile(folder):
        raise DataError(explain_archive(folder))
    found = find_files(folder)
    rows = read_manifest(manifest) if manifest else None
    litter = {entry.path: reason for entry in found if (reason := explain_ignored(entry))}
    visible = [entry for entry in found if entry.path not in litter]
    files, unlabelled = _by_folder(visible) if rows is None else _by_manifest(visible, rows)
    if not files:
        loose = [entry.path for entry in visible if "/" not in entry.path]
        raise DataError(explain_no_labels(folder, loose))
    reasons = {**litter, **unlabelled}
    skipped = (Skipped(entry.path, reasons[entry.path]) for entry in found if entry.path in reasons)
    choice = choose_splits(collections.Counter(file.split for file in files), fractions)
    chosen = sorted(file._replace(split=choice.splits[file.split]) for file in files)
    return Listing(folder, tuple(chosen), tuple(skipped), choice.fractions, choice.note)


def _by_folder(entries: list[Found]) -> tuple[list[ImageFile], dict[str, str]]:
    """Label files by their folders; return them, and the others with the reason."""
    splits = _split_folders(path.split("/")[0] for path, *_ in entries if "/" in path)
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
    """Label files by the manifest; what it names and the folder lacks is rejected later."""
    found = {entry.path: entry for entry in entries}
    names = sorted({row.split for row in rows.values() if row.split})
    for name in names:
        if not is_split_name(name):
            raise DataError(
                f"The manifest names a split {name!r}: take letters, digits, - and _ for its name."
            )
    splits = {name: SPLIT_OF_FOLDER.get(name.lower(), name) for name in names}
    files = []
    for path, (label, split, group) in rows.items():
        _, _, size, version, checksum = found.get(path, Found(path, True, 0, MISSING, ""))
        split = splits[split] if split else None
        files.append(ImageFile(path, label, split, size, version, group, checksum))
    return files, dict.fromkeys(found.keys() - rows.keys(), "not in the manifest")


def _split_folders(top_level: Iterable[str]) -> dict[str, str]:
    """Map top-level folders to splits; empty when the folders are labels."""
    splits = {name: SPLIT_OF_FOLDER.get(name.lower(), "") for name in top_level}
    return {} if "train" not in splits.values() or "" in splits.values() else splits


def check_labels(listing: Listing) -> None:
    """Raise `DataError` unless there are two labels, and each split has images of every label."""
    counts = listing.labels_per_split()
    labels = sorted(set().union(*counts.values()))
    if len(labels) < 2:
        paths = (file.path for file in listing.files)
        raise DataError(explain_one_class(listing.root, labels[0], paths))
    for label in labels:
        # The vocabulary is a text file with a label a line.
        if "\n" in label or "\r" in label or _is_not_utf8(label):
            raise DataError(
                f"The label {label!r} is not a line of UTF-8 text: rename its folder, or mend the "
                f"manifest."
            )
    for split, of_split in counts.items():
        missing = [label for label in labels if label not in of_split]
        if missing:
            raise DataError(
                f"Split {split!r} of {listing.root} has no images of class {missing[0]!r}"
                f"{f' and {len(missing) - 1} more' if missing[1:] else ''}: add some, or remove "
                f"the class from every split."
            )


def _is_not_utf8(name: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in name)

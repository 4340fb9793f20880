"""Which files a folder of images holds: their label, their split, and a fingerprint of them all."""

from __future__ import annotations

import collections
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import fsspec
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem

from components.errors import UserError

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

# Size in bytes, and version.
_Stat = tuple[int, str]

# Files that systems leave in folders; like names that start with a dot, they are not images.
_LITTER = frozenset({"Thumbs.db", "desktop.ini", "__MACOSX"})


@dataclass(frozen=True)
class ImageFile:
    """One candidate file, as the listing saw it; nothing of it has been read."""

    path: str
    """Relative to the folder, with "/" between its parts."""
    label: str
    split: str | None
    """None when the split follows from the hash of the content."""
    size: int
    """Bytes."""
    version: str
    """Changes when the content does: modification time in nanoseconds, or the store's own tag."""


@dataclass(frozen=True)
class Listing:
    """All files below a folder: the candidates, in path order, and those left out."""

    root: str
    files: tuple[ImageFile, ...]
    skipped: tuple[str, ...]
    """Paths of hidden files, system litter, what is no file, and files in no label folder."""

    def labels_per_split(self) -> dict[str | None, collections.Counter[str]]:
        """Count the files of each label in each split."""
        counts: dict[str | None, collections.Counter[str]] = {}
        for file in self.files:
            counts.setdefault(file.split, collections.Counter())[file.label] += 1
        return counts

    def fingerprint(self) -> str:
        """Digest relative paths, sizes and versions of all files.

        TFX's own fingerprint is the number of files, their bytes and the newest modification
        time, which stays the same when an image moves to another label folder.
        """
        digest = hashlib.sha256()
        for file in self.files:
            fields = (file.path, file.split or "", str(file.size), file.version)
            digest.update("\0".join(fields).encode("utf-8", "surrogateescape") + b"\0\0")
        return f"files:{len(self.files)},sha256:{digest.hexdigest()}"


def open_folder(folder: str) -> tuple[AbstractFileSystem, str]:
    """Return the file system of `folder`, a path or URL, and the path within it.

    Raises:
        UserError: there is no such kind of file system, or its package is missing.
    """
    try:
        fs, root = fsspec.core.url_to_fs(folder)
    except (ImportError, ValueError) as error:
        raise UserError(f"Cannot open {folder}: {error}.") from error
    return fs, root.rstrip("/")


def list_images(folder: str) -> Listing:
    """List `folder`, laid out as `label/…/file` or `split/label/…/file`.

    The split layout is taken when every top-level folder is named after a split and one of them
    is `train`. Without an eval split, `test` takes its place; without both, eval is taken from
    train by hash. Sorted by path, so that the same folder always gives the same listing.

    Raises:
        UserError: the folder does not exist, or holds nothing that could be labelled.
    """
    fs, root = open_folder(folder)
    if not fs.exists(root):
        raise UserError(f"{folder} does not exist: give a folder of label/image files.")
    if not fs.isdir(root):
        raise UserError(f"{folder} is a file: give the folder above it, laid out as label/image.")
    found = dict(sorted(_find_local(root) if isinstance(fs, LocalFileSystem) else _find(fs, root)))
    visible = {path: known for path, known in found.items() if known and not _is_litter(path)}
    splits = _split_folders(path.split("/")[0] for path in visible if "/" in path)
    files = [_image_file(path, known, splits) for path, known in visible.items()]
    candidates = tuple(file for file in files if file is not None)
    if not candidates:
        layout = "split/label/image" if splits else "label/image"
        raise UserError(
            f"{folder} has no images in label folders: put them at {layout}, "
            f"such as {'train/cat/1.jpg' if splits else 'cat/1.jpg'}."
        )
    kept = {file.path for file in candidates}
    return Listing(root, candidates, tuple(path for path in found if path not in kept))


def check_labels(listing: Listing) -> None:
    """Raise `UserError` unless there are two labels, and each split has images of every label."""
    counts = listing.labels_per_split()
    labels = sorted(set().union(*counts.values()))
    if len(labels) < 2:
        raise UserError(
            f"{listing.root} has one class only, {labels[0]!r}: a classifier needs at least two "
            f"label folders."
        )
    for label in labels:
        # The vocabulary is a text file with a label a line.
        if "\n" in label or "\r" in label or _is_not_utf8(label):
            raise UserError(
                f"The folder name {label!r} is no line of UTF-8 text, as a label has to be: rename "
                f"the folder."
            )
    for split, of_split in counts.items():
        missing = [label for label in labels if label not in of_split]
        if missing:
            raise UserError(
                f"Split {split!r} of {listing.root} has no images of class {missing[0]!r}"
                f"{f' and {len(missing) - 1} more' if missing[1:] else ''}: add some, or remove "
                f"the class from every split."
            )


def _is_not_utf8(name: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in name)


def _is_litter(path: str) -> bool:
    return any(part.startswith(".") or part in _LITTER for part in path.split("/"))


def _split_folders(top_level: Iterable[str]) -> dict[str, str]:
    """Map top-level folders to splits; empty when the folders are labels."""
    folders = set(top_level)
    splits = {name: SPLIT_OF_FOLDER.get(name.lower(), "") for name in folders}
    if "train" not in splits.values() or "" in splits.values():
        return {}
    if "eval" not in splits.values():
        splits = {k: "eval" if v == "test" else v for k, v in splits.items()}
    return splits


def _image_file(path: str, known: _Stat, splits: dict[str, str]) -> ImageFile | None:
    """Describe one file of the listing, or None when it lies in no label folder."""
    parts = path.split("/")
    depth = 1 if splits else 0
    if len(parts) < depth + 2:
        return None
    split = splits[parts[0]] if splits else None
    if split == "train" and "eval" not in splits.values():
        split = None
    return ImageFile(path, parts[depth], split, *known)


def _find(fs: AbstractFileSystem, root: str) -> Iterator[tuple[str, _Stat | None]]:
    """Yield the objects below `root` of a remote store, relative to it."""
    for path, info in fs.find(root, detail=True).items():
        version = info.get("generation") or info.get("etag") or info.get("ETag") or ""
        is_folder = info["type"] == "directory" or path.endswith("/")
        yield path[len(root) + 1 :], None if is_folder else (int(info["size"]), str(version))


def _find_local(
    folder: str, prefix: str = "", above: frozenset[tuple[int, int]] = frozenset()
) -> Iterator[tuple[str, _Stat | None]]:
    """Yield the files below `folder`; follow links, but none that leads back to a folder above.

    fsspec's own walk follows no links and leaves out folders that it may not read.
    """
    try:
        status = os.stat(folder)
        with os.scandir(folder) as entries:
            children = list(entries)
    except OSError as error:
        raise UserError(f"Cannot list {folder}: {error.strerror}.") from error
    above |= {(status.st_dev, status.st_ino)}
    for entry in children:
        path = prefix + entry.name
        try:
            status = entry.stat()
        except OSError:
            # Broken links stay in the listing, so that ingest rejects them with their reason.
            yield path, (0, "missing")
            continue
        if not stat.S_ISDIR(status.st_mode):
            is_file = stat.S_ISREG(status.st_mode)
            yield path, (status.st_size, str(status.st_mtime_ns)) if is_file else None
        elif (status.st_dev, status.st_ino) in above:
            yield path, None
        else:
            yield from _find_local(entry.path, f"{path}/", above)

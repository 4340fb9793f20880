"""Which files a folder of images holds: their label, their split, and a fingerprint of them all."""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import fsspec

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
    """Paths of hidden files, system litter and files that lie in no label folder."""

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


def open_folder(folder: str) -> tuple[Any, str]:
    """Return the file system of `folder`, a path or URL, and the path within it."""
    fs, root = fsspec.core.url_to_fs(folder)
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
    found = fs.find(root, detail=True)
    infos = {path[len(root) + 1 :]: info for path, info in sorted(found.items())}
    visible = {path: info for path, info in infos.items() if not _is_litter(path)}
    splits = _split_folders(PurePosixPath(path).parts[0] for path in visible if "/" in path)
    files = [_image_file(path, info, splits) for path, info in visible.items()]
    candidates = tuple(file for file in files if file is not None)
    if not candidates:
        layout = "split/label/image" if splits else "label/image"
        raise UserError(
            f"{folder} has no images in label folders: put them at {layout}, "
            f"such as {'train/cat/1.jpg' if splits else 'cat/1.jpg'}."
        )
    kept = {file.path for file in candidates}
    return Listing(root, candidates, tuple(path for path in infos if path not in kept))


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
        if "\n" in label or "\r" in label:
            raise UserError(f"The folder name {label!r} has a line break in it: rename the folder.")
    for split, of_split in counts.items():
        missing = [label for label in labels if label not in of_split]
        if missing:
            raise UserError(
                f"Split {split!r} of {listing.root} has no images of class {missing[0]!r}"
                f"{f' and {len(missing) - 1} more' if missing[1:] else ''}: add some, or remove "
                f"the class from every split."
            )


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


def _image_file(path: str, info: dict[str, Any], splits: dict[str, str]) -> ImageFile | None:
    """Describe one file of the listing, or None when it lies in no label folder."""
    parts = path.split("/")
    depth = 1 if splits else 0
    if len(parts) < depth + 2:
        return None
    split = splits[parts[0]] if splits else None
    if split == "train" and "eval" not in splits.values():
        split = None
    version = info.get("generation") or info.get("etag") or info.get("ETag")
    if version is None and "mtime" in info:
        version = int(info["mtime"] * 1e9)
    return ImageFile(path, parts[depth], split, int(info["size"]), str(version or ""))

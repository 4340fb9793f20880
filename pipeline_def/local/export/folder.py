"""Writes DEST/split/label/file, with names that every file system takes."""

import hashlib
import json
import os
import posixpath
import re
import unicodedata
from collections.abc import Iterator

from components.contract.errors import DataError
from components.contract.printable import quote
from pipeline_def.local.export.images import EXTENSIONS, Collection, Exported

MANIFEST = "manifest.jsonl"
"""Holds the further columns; only if there are any."""

_KNOWN: dict[str, tuple[str, ...]] = {of: (extension,) for of, extension in EXTENSIONS.items()}
_KNOWN["jpeg"] = (".jpg", ".jpeg", ".jpe", ".jfif")
_REPLACED = re.compile(
    r"\.(jpe?g|jpe|jfif|png|gif|bmp|webp|tiff?|hei[cf]|hif|avif)$", re.IGNORECASE
)
# Those of Windows include all others.
_FORBIDDEN = re.compile(r'[<>:"/\\|?*#%\x00-\x1f\x7f]')
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_LONGEST = 150


def write(collection: Collection, target: str) -> Iterator[Exported]:
    """Write all images below `target`, as they are stored, and yield each.

    Raises:
        DataError: a label cannot be the name of a folder.
    """
    _check_labels(collection)
    with open(os.path.join(target, MANIFEST), "w", encoding="utf-8") as manifest:
        for split in collection.counts:
            used = set[bytes]()
            for label in collection.labels:
                os.makedirs(os.path.join(target, split, label), exist_ok=True)
            for image in collection.read(split):
                path = posixpath.join(split, image.label, _choose_name(image, used))
                with open(os.path.join(target, path), "xb") as file:
                    file.write(image.encoded)
                row = {"path": path, "label": image.label, "split": split, **image.columns}
                if collection.columns:
                    manifest.write(json.dumps(row) + "\n")
                yield image
            for label in collection.labels:
                if not os.listdir(os.path.join(target, split, label)):
                    os.rmdir(os.path.join(target, split, label))
    if not collection.columns:
        os.remove(os.path.join(target, MANIFEST))


def _check_labels(collection: Collection) -> None:
    seen: dict[str, str] = {}
    for label in collection.labels:
        same = seen.setdefault(_fold(label), label)
        if same != label:
            problem = f"The labels {quote(same)} and {quote(label)} are one name"
        elif label.startswith(".") or label != _clean(label):
            problem = f"The label {quote(label)} cannot be the name of a folder"
        else:
            continue
        raise DataError(f"{problem} on some file systems: use --to webdataset, parquet or tfds.")


def _choose_name(image: Exported, used: set[bytes]) -> str:
    """Return a name that no other image of the label has, in any spelling."""
    stem = _clean(_REPLACED.sub("", posixpath.basename(image.path)))
    extension = posixpath.splitext(image.path)[1]
    if extension.lower() not in _KNOWN[image.format]:
        extension = EXTENSIONS[image.format]
    name, number = f"{stem}{extension}", 1
    while (key := _digest(f"{image.label}/{name}")) in used:
        copy = "" if number == 1 else f"-{number}"
        name, number = f"{stem}-{image.sha256[:12]}{copy}{extension}", number + 1
    used.add(key)
    return name


def _clean(name: str) -> str:
    """Replace what some file system refuses."""
    short = _FORBIDDEN.sub("-", name).encode()[:_LONGEST].decode("utf-8", "ignore")
    plain = short.rstrip(". ").lstrip(".") or "image"
    return f"{plain}-" if _DEVICES.fullmatch(plain) else plain


def _fold(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


def _digest(name: str) -> bytes:
    return hashlib.blake2b(_fold(name).encode(), digest_size=12).digest()

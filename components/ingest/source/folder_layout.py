"""Decide whether the top folders are labels or splits; explain folders that cannot be used.

A layout that could mean both is refused: split folders taken for labels would train on test images.
"""

import collections
import json
import posixpath
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence

from components.contract.artifact_files import list_names, on_disk
from components.contract.errors import DataError
from components.contract.example import EVAL, TEST, TRAIN, is_split_name
from components.contract.printable import quote, quote_path
from components.ingest.config import LayoutOption
from components.storage.folder import list_folders

_SPLIT_OF_WORD = {
    "train": TRAIN,
    "training": TRAIN,
    "val": EVAL,
    "valid": EVAL,
    "validation": EVAL,
    "eval": EVAL,
    "evaluation": EVAL,
    "dev": EVAL,
    "test": TEST,
    "testing": TEST,
}
_SPLIT_NAME = re.compile(rf"({'|'.join(_SPLIT_OF_WORD)})([ _-]?(set|split|data|images))?")
_NAMED = 3

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".txz", ".7z", ".rar")
_TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
PICTURES = (
    *(".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp"),
    *(".tif", ".tiff", ".heic", ".heif", ".hif", ".avif"),
)
"""How the names of pictures end, in lower case."""


def split_of_name(name: str) -> str | None:
    """Return the split that a name such as `Train`, `valid` or `test_set` stands for, if any."""
    match = _SPLIT_NAME.fullmatch(name.lower())
    return _SPLIT_OF_WORD[match[1]] if match else None


def find_split_folders(folder: str, paths: Iterable[str], layout: LayoutOption) -> dict[str, str]:
    """Return top folder → split, or nothing if the top folders are labels.

    Args:
        folder: path or URL.
        paths: paths of its files, relative to the folder.
        layout: what the top folders are. "auto": splits if each has the name of a split and one of
            them is train; labels if nothing suggests splits.

    Raises:
        DataError: the folders could be both, or a folder cannot be a split.
    """
    below: dict[str, set[str]] = {}
    for path in paths:
        top, *inner = path.split("/", 2)
        if inner:
            below.setdefault(top, set()).update(inner[:-1])
    splits = {name: split_of_name(name) for name in sorted(below)}
    if layout == "label":
        return {}
    if layout == "auto" and not (TRAIN in splits.values() and all(splits.values())):
        _check_clear(folder, splits, below)
        return {}
    found = {name: split or _guess_split(name) or name for name, split in splits.items()}
    if wrong := [name for name, split in found.items() if not is_split_name(split)]:
        raise DataError(
            f"The folder {wrong[0]!r} of {folder} cannot be a split: use only letters, digits, - "
            f"and _ in its name, or leave it out with ingest.exclude."
        )
    if TRAIN not in found.values():
        raise DataError(
            f"{folder} has no images in a folder train/, but ingest.layout is split: name its "
            f"folders train, eval and test."
        )
    return found


def _guess_split(name: str) -> str | None:
    """Return the split that a word of the name stands for, as in `seg_train` or `val2017`."""
    words = {_SPLIT_OF_WORD.get(word) for word in re.findall("[a-z]+", name.lower())} - {None}
    return words.pop() if len(words) == 1 else None


def _check_clear(
    folder: str, splits: Mapping[str, str | None], below: Mapping[str, Collection[str]]
) -> None:
    """Raise `DataError` if the top folders could be splits."""
    named = [name for name, split in splits.items() if split]
    others = [name for name, split in splits.items() if not split]
    guessed = {name: split for name in others if (split := _guess_split(name))}
    # Every split has the same labels, but labels rarely have the same folders.
    holders = [name for name, names in below.items() if names]
    counts = collections.Counter(name for names in below.values() for name in names)
    shared = [name for name, count in counts.items() if count > 1 and 2 * count >= len(holders)]
    options = "set ingest.layout to label or split"
    if named and others:
        doubt = f"some have names of splits ({_join(named)}) and some do not ({_join(others)})"
        example = shlex.quote(json.dumps(others[:1], ensure_ascii=False))
        options += f", or leave folders out, as in --ingest.exclude {example}"
    elif named:
        doubt = f"they have names of splits ({_join(named)}), but none is train"
        options = "name the folder of training images train, or set ingest.layout to label"
    elif len(set(guessed.values())) > 1:
        doubt = f"their names contain those of splits ({_join(guessed)})"
    elif len(shared) > 1:
        doubt = f"several ({_join(holders)}) have the same folders ({_join(shared)})"
    else:
        return
    raise DataError(
        f"It is unclear whether the folders in {folder} are labels or splits, because {doubt}: "
        f"{options}."
    )


def _join(names: Iterable[str]) -> str:
    """Join sorted names, such as "a, b and 3 more"."""
    *first, last = sorted(names)
    if len(first) >= _NAMED:
        first, last = first[:_NAMED], f"{len(first) + 1 - _NAMED} more"
    return f"{', '.join(first)} and {last}" if first else last


def explain_file(path: str) -> str:
    """Explain what to do with an archive or a table that is given as the folder."""
    if path.lower().endswith(ARCHIVES):
        return f"{path} is an archive: unpack it, and give the folder of label folders."
    return (
        f"{path} is a table, not a folder: give the folder of the images, and the table with "
        f"--ingest.manifest {shlex.quote(path)}."
    )


def explain_no_labels(folder: str, loose: Sequence[str]) -> str:
    """Explain what to do with a folder without label folders; `loose` are the files in it."""
    pictures, archives, tables = (
        [name for name in loose if name.lower().endswith(ends)]
        for ends in (PICTURES, ARCHIVES, _TABLES)
    )
    if archives and not pictures:
        return explain_file(f"{folder}/{archives[0]}")
    parent, name = posixpath.split(folder.rstrip("/"))
    above = ""
    if pictures and (others := [label for label in _find_labels(parent) if label != name]):
        # In a split folder, the labels are two levels above the images.
        top = posixpath.dirname(parent) if split_of_name(posixpath.basename(parent)) else parent
        above = f"if it is a label itself, as {_join(others)} beside it, give {top}; else "
    table = shlex.quote(f"{folder}/{tables[0]}" if tables else "labels.csv")
    return (
        f"{folder} has no images in label folders: {above}put them at label/image, such as "
        f"cat/{next(iter(pictures), '1.jpg')}, or at split/label/image, such as train/cat/1.jpg, "
        f"or list the labels in a table with the columns path and label: --ingest.manifest "
        f"{table}."
    )


def _find_labels(parent: str) -> list[str]:
    """Return the names of the local folders in `parent` that contain pictures."""
    found = list_folders(parent) if on_disk(parent) else []
    return [
        name
        for name in found
        if any(file.lower().endswith(PICTURES) for file in list_names(posixpath.join(parent, name)))
    ]


def find_picture(paths: Iterable[str], *, loose: bool) -> str | None:
    """Return the first path of a picture, by its name; unless `loose`, of one in a folder."""
    found = (path for path in paths if path.lower().endswith(PICTURES))
    return next((path for path in found if loose or "/" in path), None)


def note_other_splits(folder: str) -> list[str]:
    """Return a note if the folder is one of several splits, so that the others are not used."""
    parent, name = posixpath.split(folder.rstrip("/"))
    found = list_folders(parent) if on_disk(folder) and split_of_name(name) else []
    others = [other for other in found if split_of_name(other) and other != name]
    return [f"Not used: {_join(others)} beside {name}. To use it, give {parent}."] if others else []


def explain_paths(manifest: str, path: str, folder: str, found: Collection[str]) -> str:
    """Explain why no path of a manifest, such as `path`, is one of the files `found`."""
    text = f"None of the paths in {manifest} is a file in {folder}, such as {quote_path(path)}: "
    inner, slashed = path.partition("/")[2], path.replace("\\", "/")
    if slashed != path and slashed in found:
        return f"{text}write / in the place of \\ between its parts."
    if path.startswith("/") or "://" in path:
        return f"{text}write paths relative to the folder."
    if path.strip() in found:
        return f"{text}remove the spaces at the end."
    if inner in found and posixpath.basename(folder.rstrip("/")) == path.partition("/")[0]:
        return f"{text}the folder to give is {posixpath.dirname(folder.rstrip('/'))}."
    return f"{text}write paths relative to the folder, with / between parts."


def explain_one_class(folder: str, label: str, paths: Iterable[str]) -> str:
    """Explain what to do with a folder of one class; the labels may lie some levels deeper.

    `paths` are those of all images, relative to the folder; none if a manifest labels them.
    """
    text = f"{folder} has only one class, {quote(label)}: a classifier needs at least two"
    # The folders that all images share, down to the first with several.
    common: list[str] = []
    for names in zip(*(path.split("/")[:-1] for path in paths), strict=False):
        if len(set(names)) == 1:
            common.append(names[0])
            continue
        if common:
            deeper = "/".join([folder.rstrip("/"), *common])
            return f"{text}. {deeper} has several: local_runner.py {shlex.quote(deeper)}"
        break
    return f"{text}."

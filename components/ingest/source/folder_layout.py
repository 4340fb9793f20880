"""Decide whether the top folders are labels or splits; explain folders that cannot be used.

A layout that could mean both is refused: split folders taken for labels would train on test images.
"""

import collections
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence

from components.contract.artifact_files import on_disk
from components.contract.errors import DataError
from components.contract.example import TRAIN, is_split_name
from components.contract.printable import quote
from components.ingest.config import LayoutOption
from components.ingest.source.folder_tree import (
    SPLIT_OF_WORD,
    TABLE,
    FolderTree,
    check_copy,
    check_level,
    check_names,
    check_only,
    exclude_option,
    explain_annotations,
    guess_split,
    is_mask,
    is_plain,
    join_names,
    offer,
)
from components.storage.folder import list_folders
from components.storage.folder_listing import UNREADABLE, Found, explain_ignored

_SPLIT_NAME = re.compile(rf"({'|'.join(SPLIT_OF_WORD)})([ _-]?(set|split|data|images))?")

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".txz", ".7z", ".rar")
_TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
PICTURES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff"),
    *(".heic", ".heif", ".hif", ".avif", ".jp2", ".j2k", ".ppm", ".pgm", ".pbm", ".pnm"),
)
"""How the names of pictures end, in lower case."""


def split_of_name(name: str) -> str | None:
    """Return the split that a name such as `Train`, `valid` or `test_set` stands for, if any."""
    match = _SPLIT_NAME.fullmatch(name.lower())
    return SPLIT_OF_WORD[match[1]] if match else None


def find_split_folders(tree: FolderTree, layout: LayoutOption) -> dict[str, str]:
    """Return folder that holds label folders → split, or nothing if the top folders are labels.

    Folders between a split and its labels that have its name, or say nothing, are passed through,
    as in `train/train/cat` or `train/images/cat`.

    Args:
        tree: folders with images.
        layout: what the top folders are. "auto": splits if each has the name of a split, or a word
            of it and the same labels, and one of them is train; labels if nothing suggests splits
            or other levels.

    Raises:
        DataError: the folders could be both, hold no labels, or a folder cannot be a split.
    """
    splits = {name: split_of_name(name) for name in sorted(tree.below())}
    if layout == "label":
        return {}
    if layout == "auto" and not _are_splits(tree, splits):
        _check_clear(tree, splits)
        return {}
    named = {name: split or guess_split(name) or name for name, split in splits.items()}
    if wrong := [name for name, split in named.items() if not is_split_name(split)]:
        raise DataError(
            f"The folder {wrong[0]!r} of {tree.root} cannot be a split: use only letters, digits, "
            f"- and _ in its name, or leave it out with {exclude_option(wrong)}."
        )
    if TRAIN not in named.values():
        raise DataError(
            f"{tree.root} has no images in a folder train/, but ingest.layout is split: name its "
            f"folders train, eval and test."
        )
    places = {_pass_through(tree, name): split for name, split in named.items()}
    for place in places:
        check_names(tree, place)
        if layout == "auto":
            check_level(tree, place, "split")
    return places


def _are_splits(tree: FolderTree, splits: Mapping[str, str | None]) -> bool:
    if all(splits.values()):
        return TRAIN in splits.values()
    inner = ((name, tree.below(_pass_through(tree, name))) for name in splits)
    labels = {name: names for name, names in inner if names}
    guessed = {guess_split(name) for name in labels}
    shared = set.intersection(*labels.values()) if labels else ()
    if None in guessed or TRAIN not in guessed or len(guessed) < 2:
        return False
    return len(shared) > 1 and 2 * len(shared) >= max(map(len, labels.values()))


def _pass_through(tree: FolderTree, top: str) -> str:
    """Return the folder of a split that holds its label folders."""
    path = top
    while path not in tree.holders and len(names := tree.below(path)) == 1:
        [name] = names
        if name != top and not split_of_name(name) and not is_plain(name):
            break
        path = f"{path}/{name}"
    return path


def _check_flat(tree: FolderTree) -> None:
    """Raise `DataError` if folders that are named like splits have no folders in them."""
    names = tree.below()
    guessed = {split for name in names if (split := guess_split(name))}
    is_named = len(guessed) > 1 or any(map(split_of_name, names))
    if is_named and not any(tree.inner().values()):
        raise DataError(
            f"The folders {join_names(names)} of {tree.root} have images, but no label folders: "
            f"{explain_annotations(tree.others) or TABLE} If they are labels, set ingest.layout to "
            f"label."
        )


def _check_clear(tree: FolderTree, splits: Mapping[str, str | None]) -> None:
    """Raise `DataError` if the top folders could be splits, or the labels may be elsewhere."""
    check_names(tree, "")
    check_copy(tree)
    check_only(tree)
    _check_flat(tree)
    named = [name for name, split in splits.items() if split]
    others = [name for name, split in splits.items() if not split]
    guessed = {name: split for name in others if (split := guess_split(name))}
    inner = {name: tree.below(tree.descend(name)) for name in splits}
    # Every split has the same labels, but labels rarely have the same folders.
    holders = [name for name, names in inner.items() if names]
    counts = collections.Counter(name for names in inner.values() for name in names)
    shared = [name for name, count in counts.items() if count > 1 and 2 * count >= len(holders)]
    options = "set ingest.layout to label or split"
    if named and others:
        some, rest = join_names(named), join_names(others)
        doubt = f"some have names of splits ({some}) and some do not ({rest})"
        options += f", or leave folders out, as in {exclude_option(others)}"
    elif named:
        doubt = f"they have names of splits ({join_names(named)}), but none is train"
        options = "name the folder of training images train, or set ingest.layout to label"
    elif len(set(guessed.values())) > 1:
        doubt = f"their names contain those of splits ({join_names(guessed)})"
        options = "set ingest.layout to split, or to label if they are labels"
    elif len(shared) > 1:
        doubt = f"several ({join_names(holders)}) have the same folders ({join_names(shared)})"
        if masks := [f"*/{name}" for name in sorted(shared) if is_mask(name)]:
            options = (
                f"leave masks out, as in {exclude_option(masks)}, or set ingest.layout to label"
            )
        else:
            first = min(holders, key=lambda name: (is_mask(name), name))
            options += f", or give one of them, such as {tree.name(tree.descend(first))}"
    else:
        check_level(tree, "", "label")
        return
    raise DataError(
        f"It is unclear whether the folders in {tree.root} are labels or splits, because {doubt}: "
        f"{options}."
    )


def explain_file(path: str) -> str:
    """Explain what to do with an archive or a table that is given as the folder."""
    if path.lower().endswith(ARCHIVES):
        return f"{path} is an archive: unpack it, and give the folder of label folders."
    return (
        f"{path} is a table, not a folder: give the folder of the images, and the table with "
        f"--ingest.manifest {shlex.quote(path)}."
    )


def explain_no_labels(folder: str, loose: Sequence[str], others: Iterable[str]) -> str:
    """Explain what to do with a folder without label folders.

    `loose` are the files in it, and `others` those that are no images.
    """
    pictures, archives, tables = (
        [name for name in loose if name.lower().endswith(ends)]
        for ends in (PICTURES, ARCHIVES, _TABLES)
    )
    if archives and not pictures:
        return explain_file(f"{folder}/{archives[0]}")
    if boxes := explain_annotations((*loose, *others)):
        return f"{folder} has no images in label folders: {boxes}"
    table = shlex.quote(f"{folder}/{tables[0]}" if tables else "labels.csv")
    return (
        f"{folder} has no images in label folders: put them at label/image, such as "
        f"cat/{next(iter(pictures), '1.jpg')}, or at split/label/image, such as train/cat/1.jpg, "
        f"or list the labels in a table with the columns path and label: --ingest.manifest "
        f"{table}."
    )


def find_picture(paths: Iterable[str], *, loose: bool) -> str | None:
    """Return the first path of a picture, by its name; unless `loose`, of one in a folder."""
    pictures = (path for path in paths if path.lower().endswith(PICTURES))
    return next((path for path in pictures if loose or "/" in path), None)


def note_odd_labels(tree: FolderTree, places: Iterable[str]) -> list[str]:
    """Return notes on labels named like `images` or `masks`, and on folders in label folders.

    `places` are the folders of label folders.
    """
    inner = {
        f"{place}/{name}".lstrip("/"): folders
        for place in places
        for name, folders in tree.inner(place).items()
    }
    notes = []
    names = {path: path.rpartition("/")[2] for path in inner}
    if odd := sorted(path for path, name in names.items() if is_plain(name) or is_mask(name)):
        notes.append(
            f"Labels named like parts of a data set: {join_names({names[path] for path in odd})}. "
            f"If they are none, leave them out: {exclude_option(odd)}"
        )
    if deeper := [f"{path}/{name}" for path, folders in inner.items() for name in folders]:
        notes.append(f"Folders in label folders are not labels: {join_names(deeper)}.")
    return notes


def note_unused_folders(
    tree: FolderTree, labels: Mapping[str, Collection[str]], skipped: Mapping[str, str]
) -> list[str]:
    """Return notes on folders on disk without images beside those of labels, or without permission.

    `labels` is the folder of label folders → their names.
    """
    splits = {place.partition("/")[0] for place in labels} - {""}
    notes = []
    for place, used in {"": splits, **labels}.items() if on_disk(tree.root) else ():
        names = list_folders(tree.name(place))
        paths = {name: f"{place}/{name}".lstrip("/") for name in names if name not in used}
        if empty := [
            name
            for name, path in paths.items()
            if path not in skipped and not explain_ignored(Found(path, "", 0, "", ""))
        ]:
            notes.append(
                f"Folders without images are not labels: {join_names(empty)} in {tree.name(place)}."
            )
    if locked := [path for path, reason in skipped.items() if reason == UNREADABLE]:
        notes.append(f"Skipped for lack of permission to read: {join_names(locked)}.")
    return notes


def explain_one_class(
    folder: str, label: str, paths: Iterable[str], others: Iterable[str] = ()
) -> str:
    """Explain what to do with a folder of one class; the labels may lie some levels deeper.

    `paths` are those of all images, relative to the folder; none if a manifest labels them.
    `others` are files that are no images.
    """
    text = f"{folder} has only one class, {quote(label)}: a classifier needs at least two."
    tree = FolderTree(folder, {path.rpartition("/")[0] for path in paths})
    if not tree.holders:
        return text
    deeper = tree.descend()
    if tree.may_hold_labels(deeper):
        return f"{text} {offer(tree.name(deeper))}"
    return f"{text} {explain_annotations(others) or f'If its images have several, {TABLE}'}"

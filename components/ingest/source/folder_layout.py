"""Decide whether the top folders are labels or splits; explain folders that cannot be used.

A layout that could mean both is refused: split folders taken for labels would train on test images.
So are labels that are probably at another level, or names of folders such as `images` and `masks`.
"""

import collections
import functools
import json
import posixpath
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from components.contract.artifact_files import list_names, on_disk
from components.contract.errors import DataError
from components.contract.example import EVAL, TEST, TRAIN, is_split_name
from components.contract.printable import quote, quote_path
from components.ingest.config import LayoutOption
from components.storage.folder import list_folders
from components.storage.folder_listing import UNREADABLE, Found, explain_ignored

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
_NAMED, _MOST_EXCLUDED = 3, 10

# Words of which the names of folders consist that hold images, or what belongs to images.
_IMAGE_WORDS = {
    *("image", "images", "img", "imgs", "pic", "pics", "picture", "pictures", "jpegimages"),
    *("jpg", "jpgs", "jpeg", "jpegs", "png", "pngs", "data", "dataset", "part", "batch", "chunk"),
}
_MASK_WORDS = {
    *("mask", "masks", "annotation", "annotations", "anno", "annos", "annot", "annots", "label"),
    *("labels", "trimap", "trimaps", "segmentation", "segmentations", "segmentationclass", "gt"),
    *("segmentationobject", "segmentationclassaug", "groundtruth", "ground", "truth", "bbox"),
    *("bboxes", "boxes", "xml", "xmls", "gtfine", "gtcoarse", "heatmaps", "keypoints"),
}
_EDGES = re.compile(r"^[\W\d_]+|[\W\d_]+$")
# Fewer names of folders in folders may be anything, such as left and right.
_LEAST_INNER = 3

_BOXES = {
    "YOLO": re.compile(r"(^|/)labels/([^/]+/)*[^/]+\.txt$|(^|/)data\.ya?ml$"),
    "COCO": re.compile(r"(^|/)(annotations?/[^/]+|instances_[^/]+|[^/]*coco[^/]*)\.json$"),
    "Pascal VOC": re.compile(r"(^|/)(annotations?|xmls?|bboxe?s?)/([^/]+/)*[^/]+\.xml$"),
    "boxes": re.compile(r"(^|/)_annotations\.|(^|/)via_[^/]*\.json$"),
}

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


@dataclass(frozen=True)
class FolderTree:
    """The folders that hold images, by their paths; a folder counts with what is below it."""

    root: str
    """Path or URL."""
    holders: Set[str]
    """Folders with images directly in them."""
    unnamed: Set[str] = frozenset()
    """Folders with files only of which no name is that of a picture, if other folders have some."""
    others: Collection[str] = ()
    """Files that are no images."""

    @functools.cached_property
    def _folders(self) -> dict[str, set[str]]:
        folders: dict[str, set[str]] = {}
        for place in self.holders:
            while place:
                above, _, name = place.rpartition("/")
                folders.setdefault(above, set()).add(name)
                place = above
        return folders

    def below(self, path: str = "") -> set[str]:
        """Return the names of the folders in a folder."""
        return self._folders.get(path, set())

    def descend(self, path: str) -> str:
        """Go down while a folder holds nothing but one other folder."""
        while path not in self.holders and len(names := self.below(path)) == 1:
            path = f"{path}/{next(iter(names))}".lstrip("/")
        return path

    def name(self, path: str) -> str:
        """Return the full path of a folder."""
        return f"{self.root.rstrip('/')}/{path}" if path else self.root


def find_split_folders(tree: FolderTree, layout: LayoutOption) -> dict[str, str]:
    """Return folder that holds label folders → split, or nothing if the top folders are labels.

    Folders between a split and its labels that have its name, or say nothing, are passed through,
    as in `train/train/cat` or `train/images/cat`.

    Args:
        tree: folders with images.
        layout: what the top folders are. "auto": splits if each has the name of a split and one of
            them is train; labels if nothing suggests splits or other levels.

    Raises:
        DataError: the folders could be both, hold no labels, or a folder cannot be a split.
    """
    splits = {name: split_of_name(name) for name in sorted(tree.below())}
    if layout == "label":
        return {}
    if layout == "auto" and not (TRAIN in splits.values() and all(splits.values())):
        _check_clear(tree, splits)
        return {}
    found = {name: split or _guess_split(name) or name for name, split in splits.items()}
    if wrong := [name for name, split in found.items() if not is_split_name(split)]:
        raise DataError(
            f"The folder {wrong[0]!r} of {tree.root} cannot be a split: use only letters, digits, "
            f"- and _ in its name, or leave it out with {_exclude(wrong)}."
        )
    if TRAIN not in found.values():
        raise DataError(
            f"{tree.root} has no images in a folder train/, but ingest.layout is split: name its "
            f"folders train, eval and test."
        )
    return {_pass_through(tree, name): split for name, split in found.items()}


def _pass_through(tree: FolderTree, top: str) -> str:
    """Return the folder of a split that holds its label folders."""
    path = top
    while path not in tree.holders and len(names := tree.below(path)) == 1:
        [name] = names
        if name != top and not split_of_name(name) and not _is_made_of(name, _IMAGE_WORDS):
            break
        path = f"{path}/{name}"
    _check_names(tree, path)
    return path


def _is_made_of(name: str, *vocabularies: Set[str]) -> bool:
    """Return whether each word of a name, such as `images_001`, is in one of the vocabularies."""
    words = re.findall("[a-z]+", name.lower())
    return bool(words) and all(any(word in of for of in vocabularies) for word in words)


def _is_mask(name: str) -> bool:
    return _is_made_of(name, _IMAGE_WORDS, _MASK_WORDS) and not _is_made_of(name, _IMAGE_WORDS)


def says_nothing(name: str) -> bool:
    """Return whether a label is the name of a folder of images or masks, such as `images`."""
    return _is_made_of(name, _IMAGE_WORDS, _MASK_WORDS)


def _check_names(tree: FolderTree, path: str) -> None:
    """Raise `DataError` if the names of folders in a folder are those of parts of a data set."""
    names = sorted(tree.below(path))
    images = [name for name in names if _is_made_of(name, _IMAGE_WORDS)]
    masks = [name for name in names if _is_mask(name)]
    stems = {re.sub("[0-9]+", "", name) for name in names}
    last_words = re.findall("[a-z]+", min(stems, default="").lower())[-1:]
    is_numbered = len(stems) == 1 and _IMAGE_WORDS.issuperset(last_words) and last_words
    is_clear = not is_numbered and not (images and masks) and {*images, *masks} != {*names}
    if len(names) < 2 or is_clear:
        return
    text = f"The folders {_join(names)} of {tree.name(path)} are most likely not labels"
    for inner in (tree.descend(f"{path}/{name}".lstrip("/")) for name in images):
        if not is_numbered and len(tree.below(inner)) > 1:
            raise DataError(f"{text}. {_offer(tree.name(inner))}")
    raise DataError(
        f"{text}: {_explain_boxes(tree.others) or _TABLE} If they are labels, set ingest.layout to "
        f"label."
    )


def _offer(path: str) -> str:
    return f"{path} has several: local_runner.py {shlex.quote(path)}"


_TABLE = (
    "list the labels of the images in a table with the columns path and label, as "
    "--ingest.manifest labels.csv."
)


def _explain_boxes(paths: Iterable[str]) -> str:
    """Explain a data set for object detection, by the names of its files; "" if it is none."""
    for path in paths:
        for kind, known in _BOXES.items():
            if known.search(path.lower()):
                return (
                    f"{path} belongs to a data set for object detection ({kind}), whose boxes "
                    f"label parts of images. Export it for classification, with a folder for each "
                    f"label, or {_TABLE}"
                )
    return ""


def _check_copy(tree: FolderTree) -> None:
    """Raise `DataError` if a top folder repeats the folders beside it."""
    tops = tree.below()
    for top in sorted(tops):
        if len(again := tree.below(top) & tops) > 1 and 2 * len(again) >= len(tops) - 1:
            raise DataError(
                f"{tree.name(top)} has folders with the names of those beside it "
                f"({_join(again)}), most likely copies: leave it out, as in {_exclude([top])}, or "
                f"set ingest.layout to label or split."
            )


def _is_one_level_too_high(tree: FolderTree, inner: Mapping[str, Collection[str]]) -> bool:
    """Return whether no top folder has images itself, but folders with names of their own."""
    names = [name for names in inner.values() for name in names]
    stems = {
        stem
        for name in names
        if len(stem := _EDGES.sub("", name)) > 2 and stem.isascii() and not re.search("[0-9]", stem)
    }
    return (
        len(inner) > 1
        and tree.holders.isdisjoint(inner)
        and 2 * sum(len(names) > 1 for names in inner.values()) >= len(inner)
        and len(stems) >= max(_LEAST_INNER, len(names) // 2 + 1)
    )


def _guess_split(name: str) -> str | None:
    """Return the split that a word of the name stands for, as in `seg_train` or `val2017`."""
    words = {_SPLIT_OF_WORD.get(word) for word in re.findall("[a-z]+", name.lower())} - {None}
    return words.pop() if len(words) == 1 else None


def _check_clear(tree: FolderTree, splits: Mapping[str, str | None]) -> None:
    """Raise `DataError` if the top folders could be splits, or the labels may be elsewhere."""
    _check_names(tree, "")
    _check_copy(tree)
    _check_only(tree)
    named = [name for name, split in splits.items() if split]
    others = [name for name, split in splits.items() if not split]
    guessed = {name: split for name in others if (split := _guess_split(name))}
    inner = {name: tree.below(tree.descend(name)) for name in splits}
    # Every split has the same labels, but labels rarely have the same folders.
    holders = [name for name, names in inner.items() if names]
    counts = collections.Counter(name for names in inner.values() for name in names)
    shared = [name for name, count in counts.items() if count > 1 and 2 * count >= len(holders)]
    options = "set ingest.layout to label or split"
    if named and others:
        doubt = f"some have names of splits ({_join(named)}) and some do not ({_join(others)})"
        options += f", or leave folders out, as in {_exclude(others)}"
    elif named:
        doubt = f"they have names of splits ({_join(named)}), but none is train"
        options = "name the folder of training images train, or set ingest.layout to label"
    elif len(set(guessed.values())) > 1 and not any(map(tree.below, splits)):
        raise DataError(
            f"The folders {_join(splits)} of {tree.root} have images, but no label folders: "
            f"{_explain_boxes(tree.others) or _TABLE}"
        )
    elif len(set(guessed.values())) > 1:
        doubt = f"their names contain those of splits ({_join(guessed)})"
    elif len(shared) > 1:
        doubt = f"several ({_join(holders)}) have the same folders ({_join(shared)})"
        if masks := [f"*/{name}" for name in sorted(shared) if _is_mask(name)]:
            options = f"leave masks out, as in {_exclude(masks)}, or set ingest.layout to label"
        else:
            options += f", or give one of them, such as {tree.name(tree.descend(min(holders)))}"
    elif _is_one_level_too_high(tree, inner := {name: tree.below(name) for name in splits}):
        few = [f"{name}: {_join(names)}" for name, names in sorted(inner.items())[:2]]
        raise DataError(
            f"It is unclear which folders are the labels: those in {tree.root}, or those in them "
            f"({'; '.join(few)}). For the first, set ingest.layout to label; else give one of "
            f"them, such as {tree.name(tree.descend(min(inner)))}, or {_TABLE}"
        )
    else:
        return
    raise DataError(
        f"It is unclear whether the folders in {tree.root} are labels or splits, because {doubt}: "
        f"{options}."
    )


def _check_only(tree: FolderTree) -> None:
    """Raise `DataError` if only one top folder has pictures, in several folders."""
    tops = tree.below()
    deeper = tree.descend("")
    if len(tops) == 1 and len(tree.below(deeper)) > 1 and tree.unnamed:
        raise DataError(
            f"Only {min(tops)} of {tree.root} has pictures. {_offer(tree.name(deeper))}"
        )


def _exclude(names: Iterable[str]) -> str:
    """Return the option that leaves out folders and files."""
    return (
        f"--ingest.exclude {shlex.quote(json.dumps([*names][:_MOST_EXCLUDED], ensure_ascii=False))}"
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
    if boxes := _explain_boxes((*loose, *others)):
        return f"{folder} has no images in label folders: {boxes}"
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


def note_unused_folders(
    tree: FolderTree, labels: Mapping[str, Collection[str]], skipped: Mapping[str, str]
) -> list[str]:
    """Return notes on folders without images beside those of labels, and on unreadable folders.

    `labels` is the folder of label folders → their names.
    """
    splits = {place.partition("/")[0] for place in labels} - {""}
    notes = []
    for place, used in {"": splits, **labels}.items():
        if on_disk(tree.root):
            names = list_folders(tree.name(place))
        else:
            start = f"{place}/".lstrip("/")
            below = (path[len(start) :] for path in skipped if path.startswith(start))
            names = sorted({path.partition("/")[0] for path in below if "/" in path})
        paths = {name: f"{place}/{name}".lstrip("/") for name in names if name not in used}
        if empty := [
            name
            for name, path in paths.items()
            if path not in skipped and not explain_ignored(Found(path, "", 0, "", ""))
        ]:
            notes.append(f"Without images, and so no label: {_join(empty)} in {tree.name(place)}.")
    if locked := [path for path, reason in skipped.items() if reason == UNREADABLE]:
        notes.append(f"Without permission to read, and so skipped: {_join(locked)}.")
    return notes


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


def explain_one_class(
    folder: str, label: str, paths: Iterable[str], others: Iterable[str] = ()
) -> str:
    """Explain what to do with a folder of one class; the labels may lie some levels deeper.

    `paths` are those of all images, relative to the folder; none if a manifest labels them.
    `others` are files that are no images.
    """
    text = f"{folder} has only one class, {quote(label)}: a classifier needs at least two"
    tree = FolderTree(folder, {path.rpartition("/")[0] for path in paths})
    if not tree.holders:
        return f"{text}."
    deeper = tree.descend("")
    if deeper in tree.holders or len(tree.below(deeper)) < 2:
        return f"{text}. {_explain_boxes(others) or f'Or {_TABLE}'}"
    return f"{text}. {_offer(tree.name(deeper))}"

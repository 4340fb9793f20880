"""The tree of folders with images, and signs that the folders of a level are not the labels.

A data set as unpacked has its labels anywhere, or none: beside masks, below one folder for each
camera, in a table. Taken for labels, such folders would train a model without an error.
"""

import functools
import json
import re
import shlex
from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass

from components.contract.errors import DataError

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
_WORD = re.compile(r"[^\W\d_]+")
_EDGES = re.compile(r"^[\W\d_]+|[\W\d_]+$")
# Fewer names of folders in folders may be anything, such as left and right.
_LEAST_INNER = 3

_DETECTION = {
    "YOLO": re.compile(r"(^|/)labels/([^/]+/)*[^/]+\.txt$|(^|/)(data\.ya?ml|obj\.(data|names))$"),
    "COCO": re.compile(
        r"(^|/)(annotations?/[^/]+|instances_[^/]+|[^/]*coco[^/]*|annotations)\.json$"
    ),
    "CVAT": re.compile(r"(^|/)annotations\.xml$"),
    "Pascal VOC": re.compile(r"/[^/]+\.xml$"),
    "KITTI": re.compile(r"(^|/)label_\d/[^/]+\.txt$"),
    "boxes": re.compile(r"(^|/)_annotations\.|(^|/)via_[^/]*\.json$|(^|/)_darknet\.labels$"),
}
_SEVERAL_LABELS = re.compile(r"(^|/)_classes\.csv$")

TABLE = (
    "list the labels of the images in a table with the columns path and label, as "
    "--ingest.manifest labels.csv."
)
"""What to do where no folders are labels."""


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

    def inner(self, path: str = "") -> dict[str, set[str]]:
        """Return the names of the folders in each folder of a folder."""
        return {name: self.below(f"{path}/{name}".lstrip("/")) for name in self.below(path)}

    def descend(self, path: str = "") -> str:
        """Go down while a folder holds nothing but one other folder."""
        while path not in self.holders and len(names := self.below(path)) == 1:
            path = f"{path}/{next(iter(names))}".lstrip("/")
        return path

    def may_hold_labels(self, path: str) -> bool:
        """Return whether a folder has several folders, or folders of folders."""
        return len(names := self.inner(path)) > 1 and (
            any(names.values()) or not all(map(guess_split, names))
        )

    def name(self, path: str) -> str:
        """Return the full path of a folder."""
        return f"{self.root.rstrip('/')}/{path}" if path else self.root


SPLIT_OF_WORD = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "eval", "evaluation", "dev"), "eval"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""Word in the name of a folder → the split that it stands for."""


def guess_split(name: str) -> str | None:
    """Return the split that a word of the name stands for, as in `seg_train` or `val2017`."""
    words = {SPLIT_OF_WORD.get(word) for word in re.findall("[a-z]+", name.lower())} - {None}
    return words.pop() if len(words) == 1 else None


def is_plain(name: str) -> bool:
    """Return whether a folder's name, such as `images_001`, says only that there are images."""
    return _is_made_of(name, _IMAGE_WORDS)


def is_mask(name: str) -> bool:
    """Return whether a folder's name, such as `image_masks`, says that it holds no images."""
    return _is_made_of(name, _IMAGE_WORDS | _MASK_WORDS) and not is_plain(name)


def _is_made_of(name: str, vocabulary: Set[str]) -> bool:
    words = {*_WORD.findall(name.lower())}
    return bool(words) and words <= vocabulary


def check_names(tree: FolderTree, path: str) -> None:
    """Raise `DataError` if the names of folders in a folder are those of parts of a data set."""
    names = sorted(tree.below(path))
    images, masks = list(filter(is_plain, names)), list(filter(is_mask, names))
    # As HAM10000_images_part_1 and HAM10000_images_part_2.
    stems = {re.sub("[0-9]+", "", name) for name in names}
    parts = len(stems) == 1 and _IMAGE_WORDS.intersection(_WORD.findall(names[0].lower())[-1:])
    if len(names) < 2 or not (parts or (images and masks) or {*images, *masks} == {*names}):
        return
    text = f"The folders {join_names(names)} of {tree.name(path)} are most likely not labels"
    for name in () if parts else images:
        inner = tree.descend(f"{path}/{name}".lstrip("/"))
        if tree.may_hold_labels(inner):
            raise DataError(f"{text}. {offer(tree.name(inner))}")
    raise DataError(
        f"{text}: {explain_annotations(tree.others) or TABLE} If they are labels, set "
        f"ingest.layout to label."
    )


def check_copy(tree: FolderTree) -> None:
    """Raise `DataError` if a top folder repeats the folders beside it."""
    tops = tree.below()
    for top in sorted(tops):
        if len(again := tree.below(top) & tops) > 1 and 2 * len(again) >= len(tops) - 1:
            raise DataError(
                f"{tree.name(top)} has folders with the names of those beside it "
                f"({join_names(again)}), most likely copies: leave it out, as in "
                f"{exclude_option([top])}, or set ingest.layout to label or split."
            )


def check_only(tree: FolderTree) -> None:
    """Raise `DataError` if only one top folder has pictures, in several folders."""
    deeper = tree.descend()
    if tree.unnamed and len(tree.below()) == 1 and tree.may_hold_labels(deeper):
        text = f"Only {min(tree.below())} of {tree.root} has pictures"
        raise DataError(f"{text}. {offer(tree.name(deeper))}")


def check_level(tree: FolderTree, path: str, layout: str) -> None:
    """Raise `DataError` if folders have no images themselves, but folders with names of their own.

    `layout` is the one with which the folders are the labels.
    """
    inner = tree.inner(path)
    names = [name for names in inner.values() for name in names]
    stems = {_EDGES.sub("", name) for name in names}
    stems = {s for s in stems if len(s) > s.isascii() and not re.search("[0-9]", s)}
    if (
        len(inner) < 2
        or any(f"{path}/{name}".lstrip("/") in tree.holders for name in inner)
        or 2 * sum(len(names) > 1 for names in inner.values()) < len(inner)
        or len(stems) < max(_LEAST_INNER, len(names) // 2 + 1)
    ):
        return
    few = [f"{name}: {join_names(names)}" for name, names in sorted(inner.items()) if names][:2]
    first = tree.name(tree.descend(f"{path}/{min(inner)}".lstrip("/")))
    raise DataError(
        f"It is unclear which folders are the labels: those in {tree.name(path)}, or those in them "
        f"({'; '.join(few)}). For the first, set ingest.layout to {layout}; else give one of them, "
        f"such as {first}, or {TABLE}"
    )


def explain_annotations(paths: Iterable[str]) -> str:
    """Explain a data set whose labels are not those of images, by its files' names; or ""."""
    for path in paths:
        kinds = (kind for kind, known in _DETECTION.items() if known.search(path.lower()))
        text = f"{path} belongs to a data set"
        if kind := next(kinds, ""):
            text += f" for object detection ({kind}), whose boxes label parts of images"
        elif _SEVERAL_LABELS.search(path):
            text += " with several labels for an image"
        else:
            continue
        return f"{text}. Export it for classification, with a folder for each label, or {TABLE}"
    return ""


def offer(path: str) -> str:
    """Return a sentence that says which folder to give."""
    return f"{path} has several: local_runner.py {shlex.quote(path)}"


def exclude_option(names: Iterable[str]) -> str:
    """Return the option that leaves out folders and files."""
    patterns = json.dumps([*names][:_MOST_EXCLUDED], ensure_ascii=False)
    return f"--ingest.exclude {shlex.quote(patterns)}"


def join_names(names: Iterable[str]) -> str:
    """Join sorted names, such as "a, b and 3 more"."""
    *first, last = sorted(names)
    if len(first) >= _NAMED:
        first, last = first[:_NAMED], f"{len(first) + 1 - _NAMED} more"
    return f"{', '.join(first)} and {last}" if first else last

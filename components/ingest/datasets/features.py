"""Choose the features that are image, label, split and group, and read labels as text."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from components.contract.errors import DataError
from components.contract.printable import name_some, quote
from components.ingest.source.folder_layout import ARCHIVES, PICTURES

# Names that writers of data sets use, the most telling first: this pipeline's own and Model
# Garden's, TFDS's, WebDataset's, those common among Hugging Face's.
_IMAGES = ("image/encoded", "image", "img", "image_raw", "jpg", "jpeg", "png", "webp", "picture")
_TEXT, _NUMBER = "image/class/text", "image/class/label"
_LABELS: tuple[str, ...] = (_TEXT, "label", "labels", "cls", "class", _NUMBER)
_LABELS += ("fine_label", "category", "target", "label_name", "label_text", "label_str")
_LABELS += ("class_name", "txt")
_SPLITS = ("split",)
EXTENSIONS = (*(ends.removeprefix(".") for ends in PICTURES), "jxl")
"""Extensions of images in WebDataset; those that cannot be decoded are rejected."""
_MASKS = {"seg", "segmentation", "mask", "masks", "depth", "annotation", "instance", "semantic"}
_MASKS |= {"label", "labels", "gt", "panoptic", "disparity", "normals", "alpha", "matte"}

_START_OF_IMAGE = re.compile(
    rb"\xff\xd8\xff|\x89PNG\r\n|GIF8[79]a|BM|RIFF....WEBP|II[*+]\0|MM\0[*+]|....ftyp"
    rb"|....jP  |\xffO\xffQ",
    re.DOTALL,
)
_MOST_NAMED = 12


class Features(NamedTuple):
    """Names of the features to read; empty if there is none."""

    image: str
    label: str
    split: str
    group: str
    number: str = ""
    """The number of a label that is text."""

    @property
    def further(self) -> list[str]:
        """Names of the features beside the image."""
        return [name for name in self[1:] if name]

    def describe(self) -> str:
        """Return the features and what they are taken for, in one line."""
        pairs = zip(self._fields[:-1], self[:-1], strict=True)
        return ", ".join(f"{name} from {value}" for name, value in pairs if value)


def choose_features(
    samples: Sequence[Mapping[str, Any]],
    given: Mapping[Any, str],
    shard: str,
    *,
    labels: Collection[str],
) -> Features:
    """Choose by `ingest.features`, by known names, and the image also by its first bytes.

    Args:
        samples: features of the first records of a shard.
        given: `ingest.features`.
        shard: path of the shard, for errors.
        labels: features whose integers have names.

    Raises:
        DataError: a feature is missing, or its values are not encoded images.
    """
    known = sorted({name for sample in samples for name in sample})
    for field, name in given.items():
        if name not in known:
            raise DataError(
                f"ingest.features takes {field} from {quote(name)}, but {shard} has "
                f"{_join(known)}: name one of these."
            )
    images = [
        name
        for name in known
        if any(is_image(sample.get(name)) for sample in samples) and not _is_mask(name)
    ]
    image = given.get("image") or _first((*_IMAGES, *EXTENSIONS), images or known, shard)
    if not image and len({*map(_stem, images)}) > 1:
        raise DataError(
            f"{shard} has {_join(images)}, which are all images: name one with ingest.features, "
            f"as in {{image: {images[0]}}}."
        )
    image = image or next(iter(images), "")
    if not image:
        raise DataError(_explain_missing("image", known, shard))
    _check_image(image, samples, shard)
    label = given.get("label") or _first((*_LABELS, *labels), known, shard)
    if not label:
        raise DataError(_explain_missing("label", known, shard))
    if any(is_image(sample.get(label)) for sample in samples):
        raise DataError(
            f"The feature {quote(label)} of {shard} holds images, not the label: name another one "
            f"with ingest.features, as in {{label: NAME}}."
        )
    split = given.get("split") or _first(_SPLITS, known, shard)
    number = _NUMBER if label == _TEXT and "label" not in given else ""
    return Features(image, label, split, given.get("group", ""), number)


def is_image(value: Any) -> bool:
    """Return whether a value starts as the files of common image formats do."""
    return isinstance(value, bytes) and bool(_START_OF_IMAGE.match(value))


def _is_mask(name: str) -> bool:
    """Return whether the name is that of a picture of labels, such as `seg.png`."""
    return not _MASKS.isdisjoint(re.split(r"[^a-z]+", name.lower()))


def _stem(name: str) -> str:
    """Return `input` of `input.jpg`, and another name as it is."""
    stem, _, extension = name.rpartition(".")
    return stem if extension in EXTENSIONS else name


def _first(names: Sequence[str], known: Sequence[str], shard: str) -> str:
    """Return the feature with the first of the names, in whatever case.

    Raises:
        DataError: several differ only in case.
    """
    for name in names:
        matching = [feature for feature in known if feature.lower() == name]
        if matching[1:]:
            raise DataError(
                f"{shard} has {_join(matching)}: name one with ingest.features, as in "
                f"{{{name}: {matching[0]}}}, or remove one."
            )
        if matching:
            return matching[0]
    return ""


def _join(names: Sequence[str]) -> str:
    return f"the features {name_some(list(map(quote, names)), _MOST_NAMED)}"


def _explain_missing(field: str, known: Sequence[str], shard: str) -> str:
    present = _join(known) if known else "no features"
    also = ""
    if shard.lower().endswith(ARCHIVES):
        also = (
            "; if images and labels lie apart in it, sort them, as with tar --sort=name; if it is "
            "an archive of folders, unpack it"
        )
    return (
        f"{shard} has {present}, but none is known to be the {field}: name it with "
        f"ingest.features, as in {{{field}: NAME}}{also}."
    )


def _check_image(image: str, samples: Sequence[Mapping[str, Any]], shard: str) -> None:
    """Raise `DataError` if the values are no encoded images; broken ones are rejected later."""
    values = [sample[image] for sample in samples if sample.get(image) not in (None, [], b"")]
    text = f"The feature {quote(image)} of {shard} holds "
    if values and all(isinstance(value, str) for value in values):
        raise DataError(
            f"{text}text, such as {quote(values[0])}, not images: download the images into a "
            f"folder, and list their labels in ingest.manifest."
        )
    lists = [value for value in values if isinstance(value, list)]
    if any(isinstance(item, bytes | dict) for value in lists for item in value):
        raise DataError(f"{text}several images in a record: give each image a record of its own.")
    if values and not any(isinstance(value, bytes) for value in values):
        raise DataError(
            f"{text}numbers, such as raw pixels, not encoded images: store them as PNG or JPEG."
        )

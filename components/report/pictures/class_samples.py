"""A few training images of each class, as the model sees them and as training changes them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Sequence

from components.images.thumbnails import picture_of
from components.images.transcode import Pixels
from components.records.record_index import read_rows
from components.records.shard_files import read_index
from components.report.facts import ClassSample
from components.storage.artifact_files import open_file

PreviewImages = Callable[[Sequence[bytes]], tuple[Pixels, Pixels]]
"""Maps canonical images to what the model sees, and to what a training step may see: uint8 [images,
height, width, 3] each, the same array twice if training does not augment."""


def sample_classes(
    examples_uri: str,
    vocabulary: Sequence[str],
    *,
    shown: Sequence[str],
    each: int,
    preview_images: PreviewImages,
    split: str = "train",
) -> tuple[ClassSample, ...]:
    """Show the first images of some classes; records are in the order of a hash.

    Args:
        examples_uri: URI of ImageTransform's examples; only the images shown are read.
        vocabulary: label of each label id.
        shown: labels of the classes to show.
        each: images of each class, or as many as there are.
        preview_images: decodes the images; called once, with all of them.
        split: split to take the images from.

    Returns:
        The classes that have images, in the order of `shown`. None if the examples were not written
        by ImageTransform.
    """
    ids = {label: number for number, label in enumerate(vocabulary)}
    known = {label: ids[label] for label in shown if label in ids}
    try:
        found = _find_images(examples_uri, split, known.values(), each)
    except FileNotFoundError:
        return ()
    files = {label: found[number] for label, number in known.items() if found[number]}
    if not files:
        return ()
    seen, augmented = preview_images(list(itertools.chain.from_iterable(files.values())))
    pictures = [picture_of(image) for image in seen]
    changed = pictures if augmented is seen else [picture_of(image) for image in augmented]
    ends = list(itertools.accumulate(map(len, files.values()), initial=0))
    return tuple(
        ClassSample(label, tuple(pictures[start:end]), tuple(changed[start:end]))
        for label, (start, end) in zip(files, itertools.pairwise(ends), strict=True)
    )


def _find_images(
    examples_uri: str, split: str, ids: Collection[int], each: int
) -> dict[int, list[bytes]]:
    """Read up to `each` images of every label id, shard by shard.

    Raises:
        FileNotFoundError: a shard has no index of its images.
    """
    found: dict[int, list[bytes]] = {number: [] for number in ids}
    for shard in sorted(read_index(examples_uri)["splits"].get(split, {})):
        if all(len(files) >= each for files in found.values()):
            break
        [rows] = read_rows(examples_uri, split, [shard])
        with open_file(os.path.join(examples_uri, f"Split-{split}", shard), "rb") as file:
            for number, files in found.items():
                wanted = rows[rows[:, 2] == number][: each - len(files)]
                for offset, length, _ in wanted.tolist():
                    file.seek(offset)
                    files.append(file.read(length))
    return found

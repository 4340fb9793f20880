"""Gathers all pictures of the report, as many as there is room for."""

import functools
import importlib
import itertools
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from components.contract.artifact_files import open_file
from components.contract.example import TRAIN, count_folds
from components.contract.properties import FOLDER_PROPERTY, PropertiesLike
from components.images.thumbnails import SIDE, Thumbnail, lay_over, picture_of, read_png
from components.images.transcode import Pixels
from components.metrics.classification_metrics import ModelMetrics
from components.metrics.predictions import Evaluated
from components.records.record_index import read_rows
from components.records.shard_files import read_index
from components.report.facts import MATRIX_CLASSES
from components.report.predicted_images import choose_images, show_images
from components.report.shown import ClassSample, PredictedImage
from components.report.source_pictures import show_rejects
from components.report.suspects.gathering import FoundSuspects, show_suspects

PreviewImages = Callable[[Sequence[bytes]], tuple[Pixels, Pixels]]
"""Maps canonical images to what the model sees, and to what a training step may see: uint8 [images,
height, width, 3] each, the same array twice if training does not augment."""

MOST_BYTES = 5_500_000
"""Limit of all pictures of a page: 7.3 MB in base64, of the 10 MB that a page may have."""

_SUSPECT_BYTES = 1_500_000
"""Limit of the pictures of suspects, and of similar images."""

_SAMPLED_CLASSES, _SAMPLES_EACH = 24, 4
_REJECTS, _MISTAKES, _IMAGES = 40, 48, 1000

# Small, as each image is run through the network several times.
_EXPLAIN_BATCH = 16
_EXPLAIN_SIGNATURE = "explain"


def gather_pictures(
    given: Mapping[str, PropertiesLike],
    evaluated: Evaluated,
    metrics: ModelMetrics,
    *,
    split: str,
    config: Mapping[str, Any],
    preview_fn: str,
    model: str,
    suspects: FoundSuspects | None,
) -> dict[str, Any]:
    """Return the fields of `ReportFacts` that hold pictures."""
    examples_uri = given["examples"].uri
    root = given["examples"].get_string_custom_property(FOLDER_PROPERTY)
    module, _, name = preview_fn.rpartition(".")
    preview = getattr(importlib.import_module(module), name)
    samples = sample_classes(
        given["transformed_examples"].uri,
        evaluated.candidate.labels,
        shown=[metrics.labels[column] for column in metrics.most_mistaken(_SAMPLED_CLASSES)],
        each=_SAMPLES_EACH,
        preview_images=lambda encoded: preview(encoded, config),
    )
    rejects = show_rejects(given["rejects"].uri, root, most=_REJECTS)
    shown = {metrics.labels[column] for column in metrics.most_mistaken(MATRIX_CLASSES)}
    chosen = choose_images(evaluated, mistakes=_MISTAKES, images=_IMAGES, shown=shown)
    # The mistakes of folds are not those of the exported model.
    explain = functools.partial(explain_images, "" if count_folds(split) else model)
    mistakes, images = show_images(evaluated, chosen, examples_uri, split, explain)
    left = MOST_BYTES - _count_samples(samples) - count_bytes(reject.picture for reject in rejects)
    mistakes = keep_within(mistakes, left)
    left -= _count_images(mistakes)
    shown_suspects = None
    if suspects:
        limit = min(left, _SUSPECT_BYTES)
        shown_suspects = show_suspects(
            suspects, mistakes, examples_uri=examples_uri, root=root, limit=limit
        )
        left -= count_bytes(shown_suspects.pictures.values())
    return {
        "suspects": shown_suspects,
        "samples": samples,
        "rejects": rejects,
        "mistakes": mistakes,
        "images": keep_within(images, left),
    }


def count_bytes(pictures: Iterable[Thumbnail | None]) -> int:
    """Add up the sizes of pictures."""
    return sum(len(picture.jpeg) for picture in pictures if picture)


def _count_samples(samples: Iterable[ClassSample]) -> int:
    return sum(
        count_bytes(sample.seen if sample.unchanged else (*sample.seen, *sample.augmented))
        for sample in samples
    )


def _count_images(images: Iterable[PredictedImage]) -> int:
    return sum(count_bytes([image.picture, image.heat_map]) for image in images)


def keep_within(images: Sequence[PredictedImage], limit: int) -> tuple[PredictedImage, ...]:
    """Return the first images whose pictures have at most `limit` bytes in total."""
    totals = itertools.accumulate(_count_images([image]) for image in images)
    kept = sum(1 for total in totals if total <= limit)
    return tuple(images[:kept])


def sample_classes(
    examples_uri: str,
    vocabulary: Sequence[str],
    *,
    shown: Sequence[str],
    each: int,
    preview_images: PreviewImages,
) -> tuple[ClassSample, ...]:
    """Show the first images of the classes `shown`; records are in the order of a hash.

    Only these images of ImageTransform's examples are read. `vocabulary` has the label of each id.

    Returns:
        The classes that have images, in the order of `shown`; no classes if the examples were not
        written by ImageTransform.
    """
    ids = {label: number for number, label in enumerate(vocabulary)}
    known = {label: ids[label] for label in shown if label in ids}
    try:
        images = _find_images(examples_uri, known.values(), each)
    except FileNotFoundError:
        return ()
    files = {label: images[number] for label, number in known.items() if images[number]}
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


def _find_images(examples_uri: str, ids: Collection[int], each: int) -> dict[int, list[bytes]]:
    """Read up to `each` training images of every label id, shard by shard.

    Raises:
        FileNotFoundError: a shard has no index of its images.
    """
    contents: dict[int, list[bytes]] = {number: [] for number in ids}
    for shard in sorted(read_index(examples_uri)["splits"].get(TRAIN, {})):
        if all(len(files) >= each for files in contents.values()):
            break
        [rows] = read_rows(examples_uri, TRAIN, [shard])
        with open_file(os.path.join(examples_uri, f"Split-{TRAIN}", shard), "rb") as file:
            for number, files in contents.items():
                wanted = rows[rows[:, 2] == number][: each - len(files)]
                for offset, length, _ in wanted.tolist():
                    file.seek(offset)
                    files.append(file.read(length))
    return contents


def explain_images(saved_model: str, files: Mapping[str, bytes]) -> dict[str, Thumbnail]:
    """Draw a heat map over each image as the model saw it.

    Returns:
        Name → picture; none without a model or if it has no such signature, and none for a batch
        that fails.
    """
    import tensorflow as tf

    # Loading takes half a second.
    if not files or not saved_model:
        return {}
    explain = dict(tf.saved_model.load(saved_model).signatures).get(_EXPLAIN_SIGNATURE)
    if explain is None:
        return {}
    pictures: dict[str, Thumbnail] = {}
    names = list(files)
    for start in range(0, len(names), _EXPLAIN_BATCH):
        batch = names[start : start + _EXPLAIN_BATCH]
        try:
            explained = explain(image_bytes=tf.constant([files[name] for name in batch]))
        except tf.errors.OpError:
            continue
        maps, seen = explained["heat_map"].numpy(), explained["seen_bytes"].numpy()
        for name, heat, encoded in zip(batch, maps, seen, strict=True):
            pictures[name] = picture_of(lay_over(heat, read_png(encoded)), side=2 * SIDE)
    return pictures

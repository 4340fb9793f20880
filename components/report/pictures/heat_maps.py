"""Where images spoke for the labels that they got, asked of the exported model itself."""

from __future__ import annotations

from collections.abc import Mapping

from components.images.picture import Picture
from components.images.thumbnails import SIDE, lay_over, picture_of, read_png

# Few, as each image is run through the network several times.
_BATCH = 16
_SIGNATURE = "explain"


def explain_images(saved_model: str, files: Mapping[str, bytes]) -> dict[str, Picture]:
    """Draw a heat map over what the model saw of each image.

    Args:
        saved_model: path or URL; of its signatures, `explain` is asked.
        files: name → encoded image.

    Returns:
        Name → picture; nothing if the model has no such signature, and nothing of a batch that it
        cannot answer.
    """
    import tensorflow as tf

    # Loading takes half a second.
    if not files:
        return {}
    explain = dict(tf.saved_model.load(saved_model).signatures).get(_SIGNATURE)
    if explain is None:
        return {}
    pictures: dict[str, Picture] = {}
    names = list(files)
    for start in range(0, len(names), _BATCH):
        some = names[start : start + _BATCH]
        try:
            said = explain(image_bytes=tf.constant([files[name] for name in some]))
        except tf.errors.OpError:
            continue
        maps, seen = said["heat_map"].numpy(), said["seen_bytes"].numpy()
        for name, heat, encoded in zip(some, maps, seen, strict=True):
            pictures[name] = picture_of(lay_over(heat, read_png(encoded)), side=2 * SIDE)
    return pictures

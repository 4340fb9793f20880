"""Thumbnails of some images of a split, from the records that ingest has written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from components.contract.example import ENCODED, FILENAME
from components.images.picture import Picture
from components.images.thumbnails import SIDE, make_thumbnail
from components.records.shard_files import list_shards

# Records parsed at once, of whatever size they are.
_BATCH = 32


def read_thumbnails(
    examples_uri: str,
    split: str,
    filenames: Collection[str],
    *,
    side: int = SIDE,
    keep: Callable[[str, bytes], None] = lambda name, encoded: None,
) -> dict[str, Picture | None]:
    """Read the images with these names, by a pass over the split that ends with the last one.

    Args:
        examples_uri: URI of ImageExampleGen's examples, with the images as they were found.
        split: to read.
        filenames: of the images; nothing is read if there are none.
        side: of the thumbnails, pixels.
        keep: is told the name and the content of each file.

    Returns:
        File name → thumbnail, None for what cannot be shown; without names that are not found.
    """
    # Names that are not valid UTF-8 are surrogates in Python, and bytes in records.
    wanted = {name.encode("utf-8", "surrogateescape"): name for name in filenames}
    pictures: dict[str, Picture | None] = {}
    for batch, names in _read_names(examples_uri, split) if wanted else ():
        for row, name in enumerate(names):
            if name in wanted:
                [encoded] = _parse(batch[row : row + 1], ENCODED).numpy()
                pictures[wanted[name]] = make_thumbnail(encoded, side=side)
                keep(wanted[name], encoded)
        if len(pictures) == len(wanted):
            break
    return pictures


def _read_names(examples_uri: str, split: str) -> Iterator[tuple[Any, list[bytes]]]:
    """Yield serialized records, string [batch], and the file name of each."""
    import tensorflow as tf

    shards = list_shards(examples_uri, split)
    for batch in tf.data.TFRecordDataset(shards).batch(_BATCH).prefetch(1):
        yield batch, _parse(batch, FILENAME).numpy().tolist()


def _parse(serialized: Any, name: str) -> Any:
    """Return one feature of each record, string [batch]; the other features are not parsed."""
    import tensorflow as tf

    return tf.io.parse_example(serialized, {name: tf.io.FixedLenFeature([], tf.string)})[name]

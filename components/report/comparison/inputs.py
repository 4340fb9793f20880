"""Reads the inputs of a comparison from the artifacts of a run, on this machine."""

import math
from collections.abc import Collection

from components.contract.errors import StorageError
from components.contract.example import FILENAME, SHA256, decode_text
from components.images.picture import Thumbnail
from components.images.thumbnails import make_thumbnail
from components.metrics.prediction_file import MOST_SCORES, count_scores, read_predictions
from components.records.record_reader import read_features
from components.records.shard_files import list_shards
from components.report.comparison.pairs import RunPredictions
from components.report.pictures.predicted_images import read_images

_NAME, _KEY = FILENAME.encode(), SHA256.encode()
# Hexadecimal digits of a digest that decide whether an image is compared.
_DIGITS = 8


def choose_share(evaluation_uri: str) -> int:
    """Return 1 to compare all images, or else n to compare about one in n, a power of two.

    Memory then holds about `MOST_SCORES` probabilities of a run at most.
    """
    scores = math.prod(count_scores(evaluation_uri))
    return 1 << max(0, math.ceil(scores / MOST_SCORES) - 1).bit_length()


def read_evaluation(
    evaluation_uri: str, examples_uri: str, split: str, *, share: int = 1
) -> RunPredictions:
    """Read the predictions of a run, and the digest of each image from its examples.

    One image in `share` is read, the same ones in each run, by their content.

    Raises:
        OSError: a file cannot be read.
        StorageError: the files are damaged, or do not belong together.
    """
    keys: dict[str, str] = {}
    for path in list_shards(examples_uri, split):
        for features in read_features(path, (_NAME, _KEY)):
            key = decode_text(bytes(features[_KEY]))
            if int(key[-_DIGITS:], 16) % share == 0:
                keys[decode_text(bytes(features[_NAME]))] = key
    evaluated = read_predictions(evaluation_uri, only=None if share == 1 else keys.keys())
    if missing := [name for name in evaluated.filenames if name not in keys]:
        raise StorageError(f"{examples_uri} does not hold {missing[0]!r}, which was evaluated.")
    digests = tuple(keys[name] for name in evaluated.filenames)
    labels, predictions = evaluated.slices["class"], evaluated.candidate
    return RunPredictions(evaluated.filenames, labels, predictions, digests, examples_uri, split)


def read_thumbnails(run: RunPredictions, filenames: Collection[str]) -> dict[str, Thumbnail | None]:
    """Make thumbnails of some images of a run."""
    images = read_images(run.examples, run.split, filenames)
    return {name: make_thumbnail(encoded) for name, encoded in images}

"""Reads the inputs of a comparison from the artifacts of a run, on this machine."""

from collections.abc import Collection

from components.contract.errors import StorageError
from components.contract.example import FILENAME, SHA256
from components.evaluation.prediction_file import read_predictions
from components.evaluation.slices import decode_text
from components.images.picture import Picture
from components.images.thumbnails import make_thumbnail
from components.records.record_reader import read_features
from components.records.shard_files import list_shards
from components.report.comparison.paired import Evaluation
from components.report.pictures.predicted_images import read_images

_NAME, _KEY = FILENAME.encode(), SHA256.encode()


def read_evaluation(evaluation_uri: str, examples_uri: str, split: str) -> Evaluation:
    """Read the predictions of a run, and the digest of each image from its examples.

    Raises:
        OSError: a file cannot be read.
        StorageError: the files are damaged, or do not belong together.
    """
    evaluated = read_predictions(evaluation_uri)
    keys: dict[str, str] = {}
    for path in list_shards(examples_uri, split):
        for features in read_features(path, (_NAME, _KEY)):
            keys[_decode(features[_NAME])] = _decode(features[_KEY])
    if missing := [name for name in evaluated.filenames if name not in keys]:
        raise StorageError(f"{examples_uri} does not hold {missing[0]!r}, which was evaluated.")
    digests = tuple(keys[name] for name in evaluated.filenames)
    labels, predictions = evaluated.slices["class"], evaluated.candidate
    return Evaluation(evaluated.filenames, labels, predictions, digests, examples_uri, split)


def read_pictures(evaluation: Evaluation, filenames: Collection[str]) -> dict[str, Picture | None]:
    """Make thumbnails of some images of an evaluation."""
    images = read_images(evaluation.examples, evaluation.split, filenames)
    return {name: make_thumbnail(encoded) for name, encoded in images}


def _decode(value: memoryview) -> str:
    return decode_text(bytes(value))

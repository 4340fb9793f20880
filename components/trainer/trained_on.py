"""The images that an exported model was trained on: none may judge a model that starts from it.

`assets.extra/trained_on.npy` of the model has the first 64 bits of the SHA-256 of each, sorted.
"""

import io
import os
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from components.contract.artifact_files import open_file
from components.contract.errors import ModelError
from components.contract.example import SHA256, TRAIN
from components.records.record_reader import read_features
from components.trainer.input.shards import Shards

TRAINED_ON_FILE = os.path.join("assets.extra", "trained_on.npy")

Ids = NDArray[np.uint64]

_KEY = SHA256.encode()
_OFF = "set model.warm_start to false"


def list_keys(shards: Shards) -> Iterator[str]:
    """Yield the SHA-256 of each image; empty if another component wrote the examples."""
    for path in shards.paths:
        for features in read_features(path, (_KEY,)):
            yield bytes(features.get(_KEY, b"")).decode(errors="replace")


def write_trained_on(saved_model: str, keys: Iterable[str], earlier: Ids | None) -> None:
    """Write the file of a model, unless the images are not identified.

    Args:
        saved_model: folder of the model.
        keys: SHA-256 of each image that it was trained on.
        earlier: images that the model was trained on from which this one started.
    """
    if (ids := _shorten(keys)) is None:
        return
    buffer = io.BytesIO()
    np.save(buffer, ids if earlier is None else np.union1d(ids, earlier))
    with open_file(os.path.join(saved_model, TRAINED_ON_FILE), "wb") as file:
        file.write(buffer.getvalue())


def check_unseen(version: str, train: Shards) -> Ids:
    """Return the images that a pushed model was trained on; none may judge the new model.

    Args:
        version: folder of the model.
        train: the train split; all other splits beside it judge.

    Raises:
        ModelError: some do, or it is not known.
    """
    seen = _read(version)
    judging = (shards for shards in Shards.of_all_splits(train.uri) if shards.split != TRAIN)
    judges = _shorten(key for shards in judging for key in list_keys(shards))
    if judges is None:
        raise ModelError(
            f"model.warm_start: the examples have no {SHA256}, so nobody knows whether {version} "
            f"was trained on images that would judge the new model: {_OFF}."
        )
    if shared := len(np.intersect1d(seen, judges, assume_unique=True)):
        raise ModelError(
            f"model.warm_start: {version} was trained on {shared:,} of the {len(judges):,} images "
            f"that would judge the new model. Cross-validated models are trained on all images: "
            f"push one that was trained with training.folds 0, keep the splits as they were, or "
            f"{_OFF}."
        )
    return seen


def _read(version: str) -> Ids:
    try:
        with open_file(os.path.join(version, TRAINED_ON_FILE), "rb") as file:
            found: Ids = np.load(io.BytesIO(file.read()), allow_pickle=False)
    except FileNotFoundError as error:
        raise ModelError(
            f"model.warm_start: {version} does not list the images that it was trained on, and "
            f"some might judge the new model: train and push a model anew, or {_OFF}."
        ) from error
    except (ValueError, EOFError) as error:
        raise ModelError(
            f"model.warm_start: {TRAINED_ON_FILE} of {version} is damaged: name another version."
        ) from error
    return found


def _shorten(keys: Iterable[str]) -> Ids | None:
    """Return the first 64 bits of each, sorted and without repeats; None if any is missing."""
    try:
        return np.unique(np.fromiter((int(key[:16], 16) for key in keys), np.uint64))
    except ValueError:
        return None

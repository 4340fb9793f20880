"""Reads and writes weights files, without TensorFlow: NumPy's archives, which run no code."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from components.contract.configuration import from_dict
from components.contract.errors import ModelError
from components.contract.model_files import WEIGHTS_FILE
from components.contract.properties import LookupInput
from components.contract.rules_of_thumb import OWN_NETWORKS
from components.storage.folder import (
    CLOUD_STORAGE,
    explaining_errors,
    open_folder,
    replace_file,
)
from components.storage.object_store import SCHEMES
from components.trainer.config.model import APPLICATIONS, ModelConfig

# NumPy is imported where arrays are: the pod of a lookup must start fast.
if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

# What NumPy raises for a file that is truncated, modified or no archive.
_DAMAGED = (zipfile.BadZipFile, ValueError, KeyError, EOFError, TypeError, NotImplementedError)
_NETWORK = "network"


class StoredWeights(NamedTuple):
    """The content of a weights file."""

    layers: dict[str, list[Array]]
    """Name of each layer that has weights → them, in the order of the model."""
    network: str
    """`model.name` of the network."""


def name_network(config: ModelConfig) -> ModelConfig:
    """Check the file of `model.weights` before a run, and take `model.name` from it if not set.

    Whether the weights fit is only known when the network is built. Errors are those of
    `read_weights`.
    """
    if not config.weights_file:
        return config
    with _open(config.weights_file) as arrays:
        network = str(arrays[_NETWORK])
    known = config.name == "auto" and network in (*OWN_NETWORKS, *APPLICATIONS)
    return dataclasses.replace(config, name=network) if known else config


def weights_version(config: ModelConfig) -> str:
    """Return a key that changes with the file of `model.weights`; "" without a file.

    It depends on the content, unless the store has a checksum: the time of a local file may differ
    elsewhere, and a web server may say nothing. Errors are those of `read_weights`.
    """
    if not config.weights_file:
        return ""
    fs, path = open_folder(config.weights_file)
    with _reading(config.weights_file):
        if config.weights_file.startswith((*CLOUD_STORAGE, *SCHEMES)):
            return str(fs.ukey(path))
        with fs.open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def look_up(inputs: Mapping[str, LookupInput], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the version of the initial weights as an execution property of the Trainer.

    Raises:
        ModelError: there is no such file.
    """
    model = json.loads(properties["custom_config"])["model"]
    return {"found_weights": weights_version(from_dict(ModelConfig, model))}


def read_weights(url: str) -> StoredWeights:
    """Read a weights file from disk or a store.

    Raises:
        ModelError: the file is missing, damaged, or not a weights file.
        StorageError: its store cannot be reached.
    """
    layers: dict[str, list[Array]] = {}
    with _open(url) as arrays:
        for key in arrays.files:
            layer, inside, _ = key.rpartition("/")
            if inside:
                layers.setdefault(layer, []).append(arrays[key])
        return StoredWeights(layers, str(arrays[_NETWORK]))


def write_weights(path: str, layers: Mapping[str, Sequence[Any]], *, network: str) -> None:
    """Write the weights of each layer by name, and the name of the network, to a path or URL."""
    import numpy as np

    numbered = {
        f"{layer}/{number}": array
        for layer, arrays in layers.items()
        for number, array in enumerate(arrays)
    }
    buffer = io.BytesIO()
    np.savez(buffer, **{_NETWORK: np.array(network)}, **numbered)
    replace_file(path, buffer.getvalue())


@contextlib.contextmanager
def _open(url: str) -> Iterator[Any]:
    """Open an archive; its checksums are compared as its arrays are read."""
    import numpy as np

    fs, path = open_folder(url)
    with _reading(url):
        try:
            with fs.open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
                yield arrays
        except _DAMAGED as error:
            raise ModelError(
                f"model.weights {url} is damaged, or not a weights file: name the {WEIGHTS_FILE} "
                f"of an earlier training; a model.build_fn can load others."
            ) from error


@contextlib.contextmanager
def _reading(url: str) -> Iterator[None]:
    """Turn errors of a file system into ours."""
    with explaining_errors("read", url):
        try:
            yield
        except FileNotFoundError as error:
            raise ModelError(
                f"model.weights {url} does not exist: name an existing file, or auto, imagenet or "
                "none."
            ) from error

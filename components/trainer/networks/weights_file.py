"""Reads weights files, without TensorFlow.

A file is read as arrays by name: nothing in it is run or unpickled, and no links to other files are
followed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from components.contract.configuration import from_dict
from components.contract.errors import ModelError
from components.contract.properties import LookupInput
from components.contract.rules_of_thumb import OWN_NETWORKS
from components.storage.folder import explaining_errors, is_local, open_folder, reason_of
from components.trainer.config.model import APPLICATIONS, ModelConfig

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_HDF5 = b"\x89HDF\r\n\x1a\n"
# What h5py raises for a truncated or modified file.
_DAMAGED = (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError)
NETWORK = "network"
"""Attribute with the name of the network."""


class StoredWeights(NamedTuple):
    """The content of a weights file."""

    layers: dict[str, list[Array]]
    """Name of each layer that has weights → them, in the order of the model."""
    network: str
    """`model.name` that wrote the file; empty for files of other programs."""


def name_network(config: ModelConfig) -> ModelConfig:
    """Check the file of `model.weights` before a run, and take `model.name` from it if not set.

    Whether the weights fit is only known when the network is built. Errors are those of
    `read_weights`.
    """
    if not config.weights_file:
        return config
    _check_file(config.weights_file)
    if config.name != "auto" or config.build_fn:
        return config
    import h5py  # type: ignore[import-untyped]

    fs, path = open_folder(config.weights)
    # The Trainer reports a damaged file or one of another kind.
    with contextlib.suppress(*_DAMAGED), fs.open(path, "rb") as file, h5py.File(file) as weights:
        network = str(weights.attrs.get(NETWORK, ""))
        if network in (*OWN_NETWORKS, *APPLICATIONS):
            return dataclasses.replace(config, name=network)
    return config


def weights_version(config: ModelConfig) -> str:
    """Return a key that changes with the file of `model.weights`; "" without a file.

    It depends on the content of a local file, whose time may differ elsewhere. Errors are those of
    `read_weights`.
    """
    if not config.weights_file:
        return ""
    fs, path = open_folder(config.weights_file)
    with _reading(config.weights_file):
        if not is_local(fs):
            return str(fs.ukey(path))
        with open(path, "rb") as file:
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
    import h5py

    _check_file(url)
    fs, path = open_folder(url)
    with _reading(url):
        content = io.BytesIO(fs.cat_file(path))
    try:
        with h5py.File(content, "r") as file:
            return _read(file)
    except _DAMAGED as error:
        raise ModelError(
            f"model.weights {url} is damaged, or contains no Keras weights ({reason_of(error)}): "
            f"write or copy it again; Keras writes them with save('name.h5')."
        ) from error


def _check_file(url: str) -> None:
    fs, path = open_folder(url)
    with _reading(url):
        if fs.isdir(path):
            raise ModelError(
                f"model.weights {url} is a folder: name a weights file in it, such as "
                f"backbone.weights.h5."
            )
        with fs.open(path, "rb") as file:
            start = file.read(len(_HDF5))
    if start != _HDF5:
        raise ModelError(
            f"model.weights {url} is not a weights file of Keras: it must be HDF5, as "
            f"save('name.h5') writes it."
        )


@contextlib.contextmanager
def _reading(url: str) -> Iterator[None]:
    """Turn errors of a file system into ours."""
    with explaining_errors("read", url):
        try:
            yield
        except FileNotFoundError as error:
            raise ModelError(
                f"model.weights {url} does not exist: name an existing file, auto or none."
            ) from error


def _read(file: Any) -> StoredWeights:
    """Read the format of Keras 2, of weights or of a whole model."""
    is_whole_model = file.get("model_weights", getlink=True) is not None
    root = _find(file, "model_weights") if is_whole_model else file
    layers = {
        layer: [
            _find(root, f"{layer}/{name}")[()]
            for name in _read_names(_find(root, layer), "weight_names")
        ]
        for layer in _read_names(root, "layer_names")
    }
    if not layers:
        raise ValueError("it does not list its layers")
    nonempty = {name: weights for name, weights in layers.items() if weights}
    return StoredWeights(nonempty, str(file.attrs.get(NETWORK, "")))


def _find(group: Any, path: str) -> Any:
    """Return the group or array at a path, which is in the same file."""
    import h5py

    for name in filter(None, path.split("/")):
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise ValueError(f"{name} is a link, or missing")
        group = group[name]
    if isinstance(group, h5py.Dataset) and (group.external or group.is_virtual):
        raise ValueError(f"{path} links to another file")
    return group


def _read_names(group: Any, name: str) -> list[str]:
    """Read a list of names that Keras may have split into several attributes."""
    parts = [group.attrs[name]] if name in group.attrs else []
    while f"{name}{len(parts)}" in group.attrs:
        parts.append(group.attrs[f"{name}{len(parts)}"])
    names = [value for part in parts for value in part]
    return [value.decode() if isinstance(value, bytes) else str(value) for value in names]

"""Reads weights files, without TensorFlow.

A file is read as arrays by name: nothing in it is run or unpickled, and no links to other files are
followed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import tempfile
import zipfile
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

_HDF5, _ZIP = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04"
# The weights in a `.keras` archive.
_ARCHIVED = "model.weights.h5"
# Groups around the layers of a model within a model, in Keras's third format.
_CONTAINERS = re.compile(r"(?:^|/)(?:layers|_layer_checkpoint_dependencies)(?=/)")
NETWORK = "network"
"""Attribute with the name of the network."""


class StoredWeights(NamedTuple):
    """The content of a weights file."""

    layers: dict[str, list[Array]]
    """Layer → its weights, without empty ones. Keras 2 has the layer's name; Keras's third format
    `conv2d`, `conv2d_1` and so on, with "/" for models within models."""
    in_order: bool
    """Whether layers are in the order of the model, as in files of Keras 2."""
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
    with contextlib.suppress(OSError), fs.open(path, "rb") as file, h5py.File(file) as weights:
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

    with _local_copy(url) as path:
        try:
            with h5py.File(path, "r") as file:
                return _read(file)
        # h5py raises any of these for a truncated or modified file.
        except (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError) as error:
            raise ModelError(
                f"model.weights {url} is damaged, or contains no Keras weights "
                f"({reason_of(error)}): write or copy it again."
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
    if not start.startswith((_HDF5, _ZIP)):
        raise ModelError(
            f"model.weights {url} is not a weights file of Keras: it must be HDF5 (.h5) or a Keras "
            f"archive (.keras)."
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


@contextlib.contextmanager
def _local_copy(url: str) -> Iterator[str]:
    """Yield the path of an HDF5 file: of `url` itself if it is one on disk."""
    _check_file(url)
    fs, path = open_folder(url)
    with tempfile.TemporaryDirectory() as folder:
        if not is_local(fs):
            copy = os.path.join(folder, "weights")
            with _reading(url):
                fs.get_file(path, copy)
            path = copy
        with open(path, "rb") as file:
            is_archive = file.read(len(_ZIP)) == _ZIP
        yield _unpack(path, folder, url) if is_archive else path


def _unpack(archive: str, folder: str, url: str) -> str:
    """Extract the weights from a `.keras` archive, but not its description of the model."""
    target = os.path.join(folder, _ARCHIVED)
    try:
        with (
            zipfile.ZipFile(archive) as file,
            file.open(_ARCHIVED) as source,
            open(target, "wb") as copy,
        ):
            shutil.copyfileobj(source, copy)
    except (KeyError, zipfile.BadZipFile, OSError) as error:
        raise ModelError(
            f"model.weights {url} is damaged, or not a Keras archive ({reason_of(error)}): use a "
            f"file that ends in .h5 or .keras."
        ) from error
    return target


def _read(file: Any) -> StoredWeights:
    is_whole_model = file.get("model_weights", getlink=True) is not None
    root = _descend(file, "model_weights") if is_whole_model else file
    arrays = _read_arrays(root)
    network = str(file.attrs.get(NETWORK, ""))
    if ordered := _read_names(root, "layer_names"):
        layers = {
            layer: [
                arrays[f"{layer}/{name}"]
                for name in _read_names(_descend(root, layer), "weight_names")
            ]
            for layer in ordered
        }
    else:
        layers = _group_by_layer(arrays)
    nonempty = {name: weights for name, weights in layers.items() if weights}
    return StoredWeights(nonempty, bool(ordered), network)


def _descend(group: Any, path: str) -> Any:
    """Return the group at a path, which is in the same file."""
    import h5py

    for name in filter(None, path.split("/")):
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise ValueError(f"{name} is a link")
        group = group[name]
    return group


def _read_arrays(group: Any) -> dict[str, Array]:
    """Return all arrays of a group without following links to other files."""
    import h5py

    arrays: dict[str, Array] = {}

    def visit(name: str, found: Any) -> None:
        if isinstance(found, h5py.Dataset):
            if found.external or found.is_virtual:
                raise ValueError(f"{name} links to another file")
            arrays[name] = found[()]

    group.visititems(visit)
    return arrays


def _read_names(group: Any, name: str) -> list[str]:
    """Read a list of names that Keras may have split into several attributes."""
    parts = [group.attrs[name]] if name in group.attrs else []
    while f"{name}{len(parts)}" in group.attrs:
        parts.append(group.attrs[f"{name}{len(parts)}"])
    names = [value for part in parts for value in part]
    return [value.decode() if isinstance(value, bytes) else str(value) for value in names]


def _group_by_layer(arrays: dict[str, Array]) -> dict[str, list[Array]]:
    """Group `layers/functional/layers/conv2d/vars/0` and the like by `functional/conv2d`."""
    numbered: dict[str, dict[int, Array]] = {}
    for path, array in arrays.items():
        layer, _, number = path.rpartition("/vars/")
        if number and not layer.startswith("optimizer"):
            name = _CONTAINERS.sub("", layer).strip("/")
            numbered.setdefault(name, {})[int(number)] = array
    return {name: [of[n] for n in sorted(of)] for name, of in numbered.items()}

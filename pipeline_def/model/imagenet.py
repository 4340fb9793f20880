"""Whether weights called imagenet can be had, asked before a run begins and without TensorFlow."""

from __future__ import annotations

import os
import re
import urllib.error
import urllib.request

from components.contract.errors import ModelError
from pipeline_def.config.model import ModelConfig

_HOST = "https://storage.googleapis.com/tensorflow/keras-applications/"
_SECONDS = 5.0


def check_imagenet(config: ModelConfig) -> None:
    """Raise an error if Keras will be able neither to find nor to download the weights.

    Raises:
        ModelError: the network's weights are not in Keras's folder, and its server does not answer.
    """
    if config.weights != "imagenet" or _is_kept(config.name):
        return
    try:
        urllib.request.urlopen(urllib.request.Request(_HOST, method="HEAD"), timeout=_SECONDS)
    except urllib.error.HTTPError:
        # It answers, and there is nothing at the address of the folder.
        return
    except OSError as error:
        reason = getattr(error, "reason", None) or error
        raise ModelError(
            f"The weights of {config.name} that model.weights imagenet asks for are not in "
            f"{_folder()}, and cannot be downloaded ({reason}): give a file, --model.weights FILE."
        ) from error


def _folder() -> str:
    """Return where Keras keeps what it has downloaded."""
    home = os.environ.get("KERAS_HOME") or os.path.join(os.path.expanduser("~"), ".keras")
    return os.path.join(home, "models")


def _is_kept(name: str) -> bool:
    try:
        return any(_plain(name) in _plain(file) for file in os.listdir(_folder()))
    except OSError:
        return False


def _plain(name: str) -> str:
    """Leave letters and digits only: Keras writes efficientnetv2-b0 and weights_mobilenet_v3."""
    return re.sub(r"[^a-z0-9]", "", name.lower())

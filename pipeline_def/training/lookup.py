"""Find the version of the file of initial weights; imports neither TensorFlow nor TFX."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from components.contract.configuration import from_dict
from components.contract.properties import LookupInput
from pipeline_def.config.model import ModelConfig
from pipeline_def.model.weights_file import weights_version

FOUND_KEY = "found_weights"
"""The execution property that is looked up: it changes with the file of `model.weights`."""


def look_up(inputs: Mapping[str, LookupInput], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the version of the weights file.

    Raises:
        ModelError: there is no such file.
    """
    config = json.loads(properties["custom_config"])
    return {FOUND_KEY: weights_version(from_dict(ModelConfig, config["model"]))}

"""The executor of each worker on Vertex AI; it imports nothing of Google's cloud."""

from __future__ import annotations

import json
from typing import Any

from tfx.components.trainer.executor import GenericExecutor
from tfx.types import Artifact
from tfx.types.standard_component_specs import CUSTOM_CONFIG_KEY

Artifacts = dict[str, list[Artifact]]

# Prefix of the keys by which TFX's extension finds the job in `custom_config`.
_JOB_PREFIX = "ai_platform_"


class WorkerTrainer(GenericExecutor):
    """Trains as one of several workers, without the keys that describe their job."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Run TFX's executor."""
        config = json.loads(exec_properties[CUSTOM_CONFIG_KEY])
        own = {key: value for key, value in config.items() if not key.startswith(_JOB_PREFIX)}
        properties = {**exec_properties, CUSTOM_CONFIG_KEY: json.dumps(own, sort_keys=True)}
        super().Do(input_dict, output_dict, properties)

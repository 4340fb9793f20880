"""The executor of each worker on Vertex AI; it imports nothing of Google's cloud."""

from __future__ import annotations

import json
from typing import Any

from tfx.components.trainer.executor import GenericExecutor
from tfx.types import Artifact, standard_component_specs

from pipeline_def.kubeflow.workers.worker_pools import JOB_KEYS

_CUSTOM_CONFIG = standard_component_specs.CUSTOM_CONFIG_KEY

Artifacts = dict[str, list[Artifact]]


class WorkerTrainer(GenericExecutor):
    """Trains as one of several workers, without what only their starter needs to know."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Run TFX's executor."""
        config = json.loads(exec_properties[_CUSTOM_CONFIG])
        own = {name: value for name, value in config.items() if name not in JOB_KEYS}
        properties = {**exec_properties, _CUSTOM_CONFIG: json.dumps(own, sort_keys=True)}
        super().Do(input_dict, output_dict, properties)

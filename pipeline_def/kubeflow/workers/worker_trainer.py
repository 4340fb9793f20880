"""The executor of each worker of the Trainer step; it imports nothing of Google's cloud."""

from __future__ import annotations

import copy
import json
import os
import tempfile
from typing import Any

from tfx.components.trainer.executor import GenericExecutor
from tfx.types import Artifact, standard_component_specs
from tfx.utils import path_utils

from pipeline_def.kubeflow.workers.chief import is_chief

_CUSTOM_CONFIG = standard_component_specs.CUSTOM_CONFIG_KEY
# What tells TFX's extension of the job is nothing that run_fn knows.
_JOB_KEYS = "ai_platform_"

Artifacts = dict[str, list[Artifact]]


class WorkerTrainer(GenericExecutor):
    """Trains as one of several workers; only the chief writes the outputs."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Run TFX's executor, which asks every worker for a model at the end."""
        config = json.loads(exec_properties[_CUSTOM_CONFIG])
        own = {name: v for name, v in config.items() if not name.startswith(_JOB_KEYS)}
        properties = {**exec_properties, _CUSTOM_CONFIG: json.dumps(own, sort_keys=True)}
        if is_chief(os.environ):
            super().Do(input_dict, output_dict, properties)
            return
        with tempfile.TemporaryDirectory() as folder:
            super().Do(input_dict, _private(output_dict, folder), properties)


def _private(outputs: Artifacts, folder: str) -> Artifacts:
    """Return outputs below `folder`, with the folder of a model, for which TFX looks."""
    private: Artifacts = copy.deepcopy(outputs)
    for key, artifacts in private.items():
        for number, artifact in enumerate(artifacts):
            artifact.uri = os.path.join(folder, key, str(number))
            os.makedirs(artifact.uri)
    for model in private[standard_component_specs.MODEL_KEY]:
        os.makedirs(path_utils.serving_model_dir(model.uri), exist_ok=True)
    return private

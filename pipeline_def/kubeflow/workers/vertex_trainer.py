"""The Trainer step with several workers on Vertex AI: TFX's own extension starts a custom job."""

from __future__ import annotations

from typing import Any

from tfx.extensions.google_cloud_ai_platform.trainer.executor import GenericExecutor

from components.contract.errors import ServiceError
from pipeline_def.kubeflow.service_errors import one_line
from pipeline_def.kubeflow.workers.worker_trainer import Artifacts, WorkerTrainer


class VertexTrainer(GenericExecutor):
    """Starts the custom job that `custom_config` describes, and waits for it."""

    def _GetExecutorClass(self) -> type[WorkerTrainer]:
        return WorkerTrainer

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Run the job.

        Raises:
            ServiceError: the job failed or was cancelled.
        """
        try:
            super().Do(input_dict, output_dict, exec_properties)
        except RuntimeError as error:
            raise ServiceError(f"Workers failed on Vertex AI: {one_line(str(error))}.") from error

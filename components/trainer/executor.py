"""The executor of ImageTrainer: TFX's own, which also passes on what ImageTuner has trained."""

from typing import Any

from tfx.components.trainer import executor
from tfx.types import artifact_utils

from components.contract.artifacts import Artifacts


class Executor(executor.GenericExecutor):
    """Calls `run_fn`."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Train, and let go of all images afterwards."""
        from components.trainer.input.host_calls import forget_calls

        try:
            super().Do(input_dict, output_dict, exec_properties)
        finally:
            forget_calls()

    def _GetFnArgs(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> Any:
        fn_args = super()._GetFnArgs(input_dict, output_dict, exec_properties)
        fn_args.custom_config["code"] = exec_properties.get("code_digest") or ""
        if runs := input_dict.get("tuner_run"):
            fn_args.custom_config["tuner_run"] = artifact_utils.get_single_uri(runs)
        return fn_args

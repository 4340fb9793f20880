"""The executor of ImageTrainer: TFX's own, which also passes on what ImageTuner has trained.

In the chief of a local run, it trains together with the workers.
"""

from typing import Any

from tfx.components.trainer import executor
from tfx.types import artifact_utils

from components.contract.artifacts import Artifacts
from components.trainer import handover


class Executor(executor.GenericExecutor):
    """Calls `run_fn`."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Train, and let go of all images afterwards."""
        from components.trainer.input.host_calls import forget_calls

        if handover.current():
            exec_properties = {**exec_properties, "run_fn": f"{__name__}.train_with_workers"}
        try:
            super().Do(input_dict, output_dict, exec_properties)
        finally:
            forget_calls()

    def _GetFnArgs(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> Any:
        fn_args = super()._GetFnArgs(input_dict, output_dict, exec_properties)
        fn_args.custom_config["code"] = exec_properties.get("code_digest") or ""
        if found := input_dict.get("tuner_run"):
            fn_args.custom_config["tuner_run"] = artifact_utils.get_single_uri(found)
        return fn_args


def train_with_workers(fn_args: Any) -> None:
    """Train on the chief and all workers, in the place of `run_fn`.

    It is here, as TFX imports the module anew: that of the handover has a state.
    """
    leading = handover.current()
    assert leading
    leading.train(fn_args)

"""The executor of ImageTuner: TFX's Tuner with our search in the place of KerasTuner's.

The search is one step, as its trials share pixels, features, compiled steps and checkpoints. Its
state lies in a study folder, found by the same data, configuration and code: a killed step goes on
there, and the folder is removed once the artifacts are written. `tuner_fn` and the files of
`best_hyperparameters` and `tuner_results` are TFX's own. No type of TFX has room for the chosen
trial's checkpoints, so a third output, `tuner_run`, carries them to Trainer, also to another
machine. Trainer sets the hyperparameters, copies the checkpoints, finds the training complete, and
calibrates, describes and exports it. All of `training.minutes` is spent here, the longer training
of the best trial included; with folds Trainer then trains on all images.
"""

import os
from typing import Any

from keras_tuner import HyperParameters, Objective, Oracle
from keras_tuner.engine.base_tuner import BaseTuner
from keras_tuner.engine.trial import Trial, TrialStatus
from tfx.components.trainer.fn_args_utils import FnArgs
from tfx.components.tuner import executor
from tfx.components.tuner.component import TunerFnResult
from tfx.types import artifact_utils
from tfx.utils import json_utils

from components.contract.artifacts import Artifacts
from components.trainer.config.recipes import get_value
from components.trainer.config.training import TrainerConfig
from components.trainer.input.host_calls import forget_calls
from components.trainer.loop.checkpoint import checkpoint_dir, remove_checkpoints
from components.trainer.preparation import (
    FOLDS,
    Preparation,
    copy_folder,
    prepare,
    read_config,
    save_trained,
    start_devices,
)
from components.tuner.search import search
from components.tuner.trials import DONE


class Executor(executor.Executor):
    """Searches, and writes what was found."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Search as `tuner_fn` says, and let go of all images afterwards."""
        fields = json_utils.loads(exec_properties["custom_config"])
        fields["code"] = exec_properties.get("code_digest") or ""
        properties = {**exec_properties, "custom_config": json_utils.dumps(fields)}
        try:
            tuner = executor.search(
                input_dict, properties, self._get_tmp_dir(), print_tuning_summary=False
            )
            executor.write_best_hyperparameters(tuner, output_dict)
            tuner.save(artifact_utils.get_single_uri(output_dict["tuner_run"]))
        finally:
            forget_calls()


def tuner_fn(fn_args: FnArgs) -> TunerFnResult:
    """Return the tuner and the arguments of its search, as TFX's Tuner asks."""
    return TunerFnResult(tuner=SearchTuner(fn_args), fit_kwargs={})


class SearchTuner(BaseTuner):
    """Our search with the interface of a tuner of KerasTuner."""

    def __init__(self, fn_args: FnArgs) -> None:
        """Prepare to search with what TFX passes, the fields of `TrainerConfig` among it."""
        oracle = Oracle(Objective("val_accuracy", "max"))
        super().__init__(oracle, directory=fn_args.working_dir)
        self._fn_args, self._study = fn_args, checkpoint_dir(fn_args)
        self._logs = os.path.join(self._study, "logs")
        self._prepared: Preparation
        self._config: TrainerConfig
        self._checkpoints: str
        self._facts: dict[str, Any]

    def search(self) -> None:
        """Search for `training.minutes`, from where an earlier attempt was interrupted.

        Raises:
            ConfigurationError: TF_CONFIG lists several processes.
        """
        config = read_config(self._fn_args)
        strategy = start_devices(config)
        self._prepared = prepare(self._fn_args, config, strategy)
        self._config, self._checkpoints, self._facts = search(
            self._prepared.data,
            self._prepared.build,
            strategy,
            folds=self._prepared.folds,
            log_dir=self._logs,
            checkpoint_dir=self._study,
        )
        facts = self._facts
        plain = {option: get_value(config, option) for option in facts["options"]}
        self.oracle.max_trials = len(facts["trials"])
        for trial in facts["trials"]:
            if trial["state"] == DONE:
                values = HyperParameters()
                values.values = {FOLDS: facts["folds"], **plain, **trial["values"]}
                done = Trial(values, str(trial["number"]), TrialStatus.COMPLETED)
                done.score = trial["score"]
                self.oracle.trials[done.trial_id] = done

    def get_best_hyperparameters(self, num_trials: int = 1) -> list[HyperParameters]:
        """Return those of the chosen trial, which need not have the highest score."""
        return [self.oracle.trials[str(self._facts["chosen"])].hyperparameters][:num_trials]

    def save(self, directory: str) -> None:
        """Write what Trainer goes on from, with the logs of all trials, and remove the study."""
        copy_folder(self._logs, directory)
        places = {"checkpoints": self._checkpoints, "directory": directory}
        save_trained(self._config, self._prepared.data, self._facts, **places)
        remove_checkpoints(self._study)

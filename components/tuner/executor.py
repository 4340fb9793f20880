"""The executor of ImageTuner: our search in the place of KerasTuner's.

The search is one step, as its trials share pixels, features, compiled steps and checkpoints. Its
state lies in a study folder, found by the same data, configuration and code: a killed step goes on
there, with other `training.minutes`, too, and the folder is removed once the artifacts are written.
The file of `best_hyperparameters` is that of TFX's Tuner. No type of TFX has room for the chosen
trial's checkpoints, so another output, `tuner_run`, carries them to Trainer, on another machine,
too. Trainer sets the hyperparameters, copies the checkpoints, finds the training complete, and
calibrates, describes and exports it. All of `training.minutes` is spent here, the longer training
of the best trial included; with folds Trainer then trains on all images.
"""

import fnmatch
import json
import os
from typing import Any

from tfx.components.trainer import fn_args_utils
from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils
from tfx.utils import io_utils, json_utils

from components.contract.artifact_files import list_names
from components.contract.tfx_classes import Artifacts
from components.storage.transfer import copy_folder, remove_folder
from components.trainer.config.recipes import get_value
from components.trainer.input.host_calls import forget_calls
from components.trainer.loop.checkpoint import checkpoint_dir
from components.trainer.preparation import FOLDS, prepare, read_config, save_trained, start_devices
from components.tuner.search import search

# As TFX's Tuner names its file.
_BEST_FILE = "best_hyperparameters.txt"


class Executor(base_executor.BaseExecutor):
    """Searches, and writes what was found."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Search for `training.minutes`, and let go of all images afterwards.

        Raises:
            ConfigurationError: TF_CONFIG lists several processes.
        """
        fields = json_utils.loads(exec_properties["custom_config"])
        fields["code"] = exec_properties.get("code_digest") or ""
        properties = {**exec_properties, "custom_config": json_utils.dumps(fields)}
        folder = self._get_tmp_dir()
        try:
            _search(fn_args_utils.get_common_fn_args(input_dict, properties, folder), output_dict)
        finally:
            forget_calls()


def _search(fn_args: Any, output_dict: Artifacts) -> None:
    """Search from where an earlier attempt was interrupted, and write the outputs."""
    config, study = read_config(fn_args), checkpoint_dir(fn_args)
    strategy, logs = start_devices(config), os.path.join(study, "logs")
    prepared = prepare(fn_args, config, strategy)
    data, folds = prepared.data, prepared.folds
    # Their number may depend on the minutes, but trials are compared on the same folds.
    for name in fnmatch.filter(list_names(study), "folds-*"):
        folds = int(name.removeprefix("folds-"))
    places = {"log_dir": logs, "checkpoint_dir": os.path.join(study, f"folds-{folds}")}
    chosen, checkpoints, facts = search(data, prepared.build, strategy, folds=folds, **places)
    plain = {option: get_value(config, option) for option in facts["options"]}
    [best] = [trial for trial in facts["trials"] if trial["number"] == facts["chosen"]]
    content = {"space": [], "values": {FOLDS: facts["folds"], **plain, **best["values"]}}
    folder = artifact_utils.get_single_uri(output_dict["best_hyperparameters"])
    io_utils.write_string_file(os.path.join(folder, _BEST_FILE), json.dumps(content))
    directory = artifact_utils.get_single_uri(output_dict["tuner_run"])
    copy_folder(logs, directory)
    save_trained(chosen, data, facts, checkpoints=checkpoints, directory=directory)
    remove_folder(study)

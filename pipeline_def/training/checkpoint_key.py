"""Which folder of checkpoints is that of a training: a second attempt finds it, no other does."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from typing import Any

from components.contract.configuration import from_dict
from components.storage.object_store import SCHEMES
from pipeline_def.code_digest import code_digest
from pipeline_def.config.trainer import TrainerConfig
from pipeline_def.model.weights_file import weights_version
from pipeline_def.steps import TRAINER

_LOGGER = logging.getLogger(__name__)


def checkpoint_dir(fn_args: Any) -> str:
    """Name a folder that a second attempt at the same training finds, and no other training.

    The same training has the same data, which the URIs of its artifacts name, configuration, code
    and file of weights. Where its checkpoints lie makes no difference. Without a folder for them
    they lie in the output of this attempt.

    Args:
        fn_args: `tfx.components.FnArgs`, with the fields of `TrainerConfig` in `custom_config`.

    Raises:
        ModelError: the file of `model.weights` is missing.
    """
    config = dict(fn_args.custom_config)
    folder = config.pop("checkpoints", "")
    if not folder:
        return os.path.join(fn_args.model_run_dir, "checkpoints")
    data = [fn_args.train_files, fn_args.eval_files, fn_args.transform_graph_path]
    model = from_dict(TrainerConfig, fn_args.custom_config).model
    facts = [*data, config, code_digest(TRAINER.id, model.build_fn), weights_version(model)]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    # TensorFlow has no file system for these.
    if folder.startswith(SCHEMES):
        _LOGGER.warning("Checkpoints cannot be kept in %s: they end with this container.", folder)
        folder = os.path.join(tempfile.gettempdir(), "checkpoints")
    return os.path.join(folder, digest)

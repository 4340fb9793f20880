"""Checkpoints, from which a training resumes as if it had never been interrupted."""

import hashlib
import io
import json
import logging
import math
import os
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from components.contract.configuration import from_dict
from components.contract.errors import DataError
from components.records.record_index import read_rows
from components.storage.object_store import SCHEMES
from components.trainer.config.training import TrainerConfig
from components.trainer.input.shards import Shards
from components.trainer.loop.strategy import own_directory, require_agreement, sync_replicas
from components.trainer.networks.weights_file import weights_version

_LOGGER = logging.getLogger(__name__)

_LOSS = "val_loss"
# At the end of each record in a TFRecord file.
_CHECKSUM_BYTES = 4

# Errors of TensorFlow and NumPy for a damaged checkpoint or one of another model, and those among
# them that mean an unreachable store, whose checkpoint may be sound.
_UNUSABLE = (AssertionError, ValueError, LookupError, zipfile.BadZipFile, tf.errors.OpError)
_UNREACHABLE = (
    *(tf.errors.UnavailableError, tf.errors.DeadlineExceededError, tf.errors.AbortedError),
    *(tf.errors.PermissionDeniedError, tf.errors.UnauthenticatedError),
)


@dataclass
class Progress:
    """The state of a training that is not in the variables of model and optimizer."""

    watched: str = _LOSS
    """Metric that chooses the best epoch: the lowest loss, or the highest of any other metric."""
    history: dict[str, list[float]] = field(default_factory=dict)
    """Metric → its value in every epoch."""
    best_epoch: int = 0
    """From 1 on; 0 while no epoch had a finite loss on the eval split."""
    best_weights: list[Any] = field(default_factory=list)
    """Weights at the end of that epoch, as Keras's `get_weights` returns them."""
    diverged: bool = False
    """Whether training has stopped because the network no longer computes finite numbers."""
    steps: int = 0
    """Steps done in the current epoch."""
    steps_per_epoch: int = 0
    """Steps of a whole epoch, which depend on the number of replicas; 0 before the first step."""
    seconds: float = 0.0
    """Duration of these steps."""
    waited: float = 0.0
    """Seconds of it spent waiting for input."""

    @property
    def epochs(self) -> int:
        """Number of completed epochs."""
        return len(self.history.get(self.watched, []))

    @property
    def best(self) -> float:
        """Value of `watched` in the best epoch; NaN, which is never better, without one."""
        return self.history[self.watched][self.best_epoch - 1] if self.best_epoch else math.nan

    def is_better(self, value: float, best: float) -> bool:
        """Return whether a value of `watched` is strictly better than `best`."""
        return value < best if self.watched == _LOSS else value > best

    def fit_epoch(self, steps: int) -> bool:
        """Continue in epochs of `steps` steps; return whether they had another number before."""
        before, self.steps_per_epoch = self.steps_per_epoch, steps
        changed = before not in (0, steps)
        if changed:
            self.steps = self.steps * steps // before
        return changed

    def end_epoch(
        self, values: dict[str, float], model: tf_keras.Model, *, keep: bool = False
    ) -> None:
        """Record the metrics of an epoch, and the weights if they are the best so far.

        With `keep` the weights of any epoch with a finite loss count as the best.
        """
        better = math.isfinite(values["loss"]) if keep else self._improves(values)
        for name, value in values.items():
            self.history.setdefault(name, []).append(value)
        if better:
            self.best_epoch = self.epochs
            self.best_weights = model.get_weights()
        self.steps, self.seconds, self.waited = 0, 0.0, 0.0

    def _improves(self, values: dict[str, float]) -> bool:
        # A network whose loss is NaN still has an accuracy, that of predicting the first class.
        if not all(math.isfinite(values[name]) for name in (_LOSS, self.watched)):
            return False
        return not self.best_epoch or self.is_better(values[self.watched], self.best)


class _SavedProgress(tf.train.experimental.PythonState):
    """Stores `Progress` in the checkpoint, so that both are of the same step."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress

    def serialize(self) -> bytes:
        fields = dict(vars(self._progress))
        weights = fields.pop("best_weights")
        buffer = io.BytesIO()
        np.savez(buffer, json.dumps(fields), *weights)
        return buffer.getvalue()

    def deserialize(self, value: bytes) -> None:
        with np.load(io.BytesIO(value), allow_pickle=False) as arrays:
            fields, *weights = (arrays[name] for name in arrays.files)
        vars(self._progress).update(json.loads(str(fields)), best_weights=weights)


class Checkpoints:
    """The latest checkpoint of a training, written atomically."""

    def __init__(self, directory: str, parts: Mapping[str, Any], *, watched: str = _LOSS) -> None:
        """Keep the variables and the progress of a training of the current strategy's scope.

        Args:
            directory: path or URL, visible to all workers: each restores what the chief saved.
            parts: everything with variables, `model` among them; model and optimizer are built.
            watched: metric that chooses the best epoch.
        """
        self.progress = Progress(watched)
        checkpoint = tf.train.Checkpoint(progress=_SavedProgress(self.progress), **parts)
        # The lists of the model and of an optimizer with loss scaling are incomplete.
        tracked = tf.train.TrackableView(checkpoint).descendants()
        self._variables = [part for part in tracked if hasattr(part, "assign")]
        self._strategy, self._directory = parts["model"].distribute_strategy, directory
        folder = own_directory(directory, self._strategy)
        self._manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=1)

    def restore(self) -> None:
        """Restore the latest checkpoint, if there is one that fits.

        Raises:
            ConfigurationError: the workers have not restored the same.
        """
        path = tf.train.latest_checkpoint(self._directory)
        number = int(path.rpartition("-")[2]) if path else 0
        # Before anything is restored, as that is an exchange with the other workers.
        require_agreement(
            number, self._strategy, what=f"The number of the latest checkpoint in {self._directory}"
        )
        restored = bool(path) and self._restore(path)
        require_agreement(
            restored, self._strategy, what=f"The number of checkpoints restored from {path}"
        )

    def _restore(self, path: str) -> bool:
        initial = [variable.numpy() for variable in self._variables]
        try:
            self._manager.checkpoint.restore(path).assert_existing_objects_matched()
        except _UNREACHABLE:
            raise
        except _UNUSABLE as error:
            _LOGGER.warning(
                "Training starts over, as checkpoint %s is damaged or belongs to another model: %s",
                *(path, str(error).partition("\n")[0]),
            )
            for variable, value in zip(self._variables, initial, strict=True):
                variable.assign(value)
            vars(self.progress).update(vars(Progress(self.progress.watched)))
            return False
        return True

    def save(self) -> None:
        """Write a checkpoint, then remove the one before."""
        sync_replicas(self._variables, self._strategy)
        self._manager.save()


def checkpoint_dir(fn_args: Any) -> str:
    """Return a folder that only further attempts at the same training or search find.

    The same training has the same data, configuration, code and weights file; a search may go on
    for other `training.minutes`. Data are identified by their URIs, which a new ML Metadata hands
    out again, and by their content. Without `checkpoints` in the configuration, the folder is in
    the output of this attempt, or for Tuner in its temporary folder.

    Args:
        fn_args: `tfx.components.FnArgs`, with the fields of `TrainerConfig` in `custom_config`, the
            digest of the step's code among them.

    Raises:
        ModelError: the file of `model.weights` is missing.
    """
    config = dict(fn_args.custom_config)
    folder = config.pop("checkpoints", "")
    if not folder:
        return os.path.join(fn_args.model_run_dir or fn_args.working_dir, "checkpoints")
    data = [fn_args.train_files, fn_args.eval_files, fn_args.transform_graph_path]
    data.append([_digest_examples(files) for files in (*fn_args.train_files, *fn_args.eval_files)])
    start = weights_version(from_dict(TrainerConfig, fn_args.custom_config).model)
    config["training"] = {**config["training"], "minutes": None}
    key = [*data, config, start, fn_args.hyperparameters]
    # The output folder may have been moved since: `folder` lies in it, beside the artifacts.
    output = json.dumps(os.path.join(os.path.dirname(folder), ""))[:-1]
    text = json.dumps(key, sort_keys=True).replace(output, '"')
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    # TensorFlow has no file system for these.
    if folder.startswith(SCHEMES):
        _LOGGER.warning("Checkpoints cannot be kept in %s and end with this container.", folder)
        folder = os.path.join(tempfile.gettempdir(), "checkpoints")
    return os.path.join(folder, digest)


def _digest_examples(pattern: str) -> str:
    """Return a digest of the sizes and labels of all images, and of the last record of each shard.

    "" if there are no such shards.
    """
    try:
        shards = Shards.of_pattern(pattern)
        tables = read_rows(shards.uri, shards.split, list(shards.counts))
    except (DataError, FileNotFoundError):
        return ""
    digest = hashlib.sha256()
    for path, rows in zip(shards.paths, tables, strict=True):
        digest.update(f"{os.path.basename(path)} {len(rows)}".encode())
        digest.update(rows.tobytes())
        if shards.local:
            # A checksum of the record; in raw storage, all images have the same size.
            with open(path, "rb") as file:
                file.seek(-min(os.path.getsize(path), _CHECKSUM_BYTES), os.SEEK_END)
                digest.update(file.read())
    return digest.hexdigest()

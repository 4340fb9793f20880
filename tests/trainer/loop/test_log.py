from pathlib import Path

import tensorflow as tf
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

from components.trainer.loop.metrics import TrainingLog


def read(folder: Path) -> EventAccumulator:
    """Read a run as TensorBoard does."""
    events = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    events.Reload()
    return events


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    values = read(folder).Tensors(tag)
    # Files of one second are read in the order of their names: 10 before 9.
    return sorted((event.step, float(tf.make_ndarray(event.tensor_proto))) for event in values)


def test_a_second_phase_continues_the_first(tmp_path: Path) -> None:
    with TrainingLog(str(tmp_path)) as log:
        log.write({"loss": 1.0, "val_loss": 0.75}, 1)
        assert scalars(tmp_path / "train", "epoch_loss") == [(1, 1)], "before the end"
        log.write_step(98, loss=1.0)
    with TrainingLog(str(tmp_path), first_epoch=1, first_step=99) as log:
        log.write({"loss": 0.5, "val_loss": 0.25}, 1)
        log.write_step(1, loss=0.25, learning_rate=0.125)
    assert scalars(tmp_path / "train", "epoch_loss") == [(1, 1), (2, 0.5)]
    assert scalars(tmp_path / "validation", "epoch_loss") == [(1, 0.75), (2, 0.25)]
    assert scalars(tmp_path / "train", "batch_loss") == [(98, 1), (100, 0.25)]
    assert scalars(tmp_path / "train", "batch_learning_rate") == [(100, 0.125)]

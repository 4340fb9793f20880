"""One Trainer in several processes, connected by TF_CONFIG."""

import time
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.summary.summary_iterator import summary_iterator

from components.contract.errors import ConfigurationError, WorkerError
from components.images.options import TransformConfig
from components.trainer.config.model import ModelConfig
from components.trainer.config.training import TrainerConfig, TrainingConfig
from components.trainer.loop.strategy import report_lost_worker, require_agreement
from tests import nodes
from tests.conftest import SIZE
from tests.trainer.input.shard_folder import trainer_arguments
from tests.trainer.loop.trainer_process import cluster, start

# In one process, so that fixtures are created once.
pytestmark = pytest.mark.xdist_group("transformed")


class _Workers(tf.distribute.MultiWorkerMirroredStrategy):
    """One of two workers, without the other, whose values are given."""

    def __init__(self, *others: float) -> None:
        self._others = iter(others)

    def experimental_distribute_values_from_function(self, value_fn: Any) -> Any:
        return value_fn(None)

    def reduce(self, reduce_op: Any, value: Any, axis: Any) -> Any:
        return (value + next(self._others)) / 2


def test_workers_that_see_different_files_stop() -> None:
    require_agreement(4, _Workers(4, 0), what="The checkpoint")
    strategy = _Workers(0, 1)
    with pytest.raises(ConfigurationError, match="The checkpoint is 4 on this worker and 2 on av"):
        require_agreement(4, strategy, what="The checkpoint")


LOST = tf.errors.UnavailableError(None, None, "Collective ops is aborted by: Connection reset")
STORE = tf.errors.UnavailableError(None, None, "Error executing an HTTP request: 503")


@pytest.mark.parametrize(
    ("strategy", "error", "raised"),
    [
        pytest.param(_Workers(), LOST, WorkerError, id="another worker"),
        pytest.param(_Workers(), STORE, type(STORE), id="a bucket"),
        pytest.param(tf.distribute.get_strategy(), LOST, type(LOST), id="no other worker"),
        pytest.param(_Workers(), KeyError("a"), KeyError, id="a bug"),
    ],
)
def test_a_lost_worker_is_one_sentence(strategy: Any, error: Any, raised: Any) -> None:
    with pytest.raises(raised) as caught, report_lost_worker(strategy):
        raise error
    if raised is WorkerError:
        assert "Start all workers again to resume" in str(caught.value)


def start_both(transformed: nodes.Transformed, target: Path) -> list[Popen[bytes]]:
    config = TrainerConfig(
        transform=TransformConfig(size=SIZE),
        model=ModelConfig(name="cnn", width=4),
        training=TrainingConfig(batch_size=16, epochs=6, patience=6),
        checkpoints=str(target / "checkpoints"),
    )
    graph, folder = transformed.graph.uri, str(target.parent)
    arguments = trainer_arguments(config, transformed.examples.uri, target, graph=graph)
    return [
        start(
            arguments,
            log=target.parent / f"{index}.log",
            environment={**environment, "TMPDIR": folder},
        )
        for index, environment in enumerate(cluster(2))
    ]


@pytest.mark.slow
def test_a_killed_worker_stops_the_others_and_all_resume_from_the_checkpoint(
    transformed: nodes.Transformed, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    chief, other = start_both(transformed, target)
    while not list(target.glob("checkpoints/*/*/ckpt-2.index")):
        assert chief.poll() is None
        time.sleep(0.01)
    chief.kill()
    assert other.wait(timeout=60) == WorkerError.exit_status
    lines = (tmp_path / "1.log").read_text().splitlines()
    [sentence] = [line for line in lines if line.startswith("Trainer: error: ")]
    assert "Another worker of this training has stopped or cannot be reached" in sentence
    assert not (target / "model").exists()
    for index, process in enumerate(start_both(transformed, target)):
        status = process.wait(timeout=300)
        assert status == 0, (tmp_path / f"{index}.log").read_text()[-2000:]
    # Each start of the chief has left a log, the second of the epochs after the checkpoint.
    _, resumed = sorted((target / "run").rglob("validation/events*"))
    [epoch, *_] = [event.step for event in summary_iterator(str(resumed)) if event.summary.value]
    # The kill may come before the other worker has its second checkpoint.
    assert epoch in (2, 3)
    # Only files of the chief are left.
    assert len(list((target / "model").rglob("variables.data-*"))) == 1
    assert not list(target.glob("checkpoints/*"))
    assert not list(tmp_path.glob("worker-*"))

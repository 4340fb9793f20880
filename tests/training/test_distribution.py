"""The input pipeline under distribution strategies, in processes of their own.

Logical devices and clusters must be set up before TensorFlow does anything else.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.data.shard_folder import SIZE, ShardFolder

# What a process prints: the sorted hashes of the images of each step, of its replicas.
_WORKER = """
import hashlib, json, sys
import tensorflow as tf

examples, kind, reader, size = sys.argv[1:4] + [int(sys.argv[4])]
if kind == "mirrored":
    [cpu] = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
elif kind == "workers":
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
elif kind == "one":
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
else:
    strategy = tf.distribute.get_strategy()

from pipeline_def.config.config import TransformConfig
from pipeline_def.data.dataset import make_dataset
from pipeline_def.data.order import TrainingOrder
from pipeline_def.config.input import InputConfig
from pipeline_def.data.shards import Shards
from components.contract.example import ENCODED, LABEL_ID

def read(part):
    return make_dataset(
        Shards.of_pattern(f"{examples}/Split-train/*"),
        config=TransformConfig(size=size),
        feature_spec={
            ENCODED: tf.io.FixedLenFeature([], tf.string),
            LABEL_ID: tf.io.FixedLenFeature([], tf.int64),
        },
        batch_size=part.get_per_replica_batch_size(8),
        options=InputConfig(reader=reader, cache="none"),
        order=TrainingOrder.of_worker(3, 2, part),
    )

def digests(images):
    return [hashlib.sha256(image.tobytes()).hexdigest()[:16] for image in images.numpy()]

batches = iter(strategy.distribute_datasets_from_function(read))
for _ in range(6):
    images, _ = next(batches)
    local = strategy.experimental_local_results(images)
    print(json.dumps(sorted(d for replica in local for d in digests(replica))))
"""


def run(shard_folder: ShardFolder, kind: str, reader: str, **environment: str) -> Any:
    return subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(shard_folder.path), kind, reader, str(SIZE)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
        stdout=subprocess.PIPE,
        text=True,
    )


def steps(process: Any) -> list[list[str]]:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return [json.loads(line) for line in output.splitlines() if line.startswith("[")]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.slow
def test_every_strategy_gives_a_step_the_same_images(shard_folder: ShardFolder) -> None:
    expected = steps(run(shard_folder, "default", "indexed"))
    assert len(expected) == 6
    assert len({digest for step in expected for digest in step}) == 48
    for kind in ("one", "mirrored"):
        assert steps(run(shard_folder, kind, "indexed")) == expected
    addresses = [f"localhost:{free_port()}" for _ in range(2)]
    workers = [
        run(
            shard_folder,
            "workers",
            "indexed",
            TF_CONFIG=json.dumps(
                {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            ),
        )
        for index in range(2)
    ]
    parts = [steps(worker) for worker in workers]
    assert [sorted(a + b) for a, b in zip(*parts, strict=True)] == expected


@pytest.mark.slow
def test_streaming_replicas_share_what_is_read(shard_folder: ShardFolder) -> None:
    assert steps(run(shard_folder, "mirrored", "streamed")) == steps(
        run(shard_folder, "default", "streamed")
    )


_TRAINING = """
import json, sys
import tensorflow as tf

examples, target, size = sys.argv[1:3] + [int(sys.argv[3])]
[cpu] = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
tf.keras.utils.set_random_seed(1)

from pipeline_def.config.augmentation import AugmentationConfig
from pipeline_def.config.config import ModelConfig, TrainingConfig, TransformConfig
from pipeline_def.data.dataset import make_dataset
from pipeline_def.config.input import InputConfig
from pipeline_def.model.networks import build_model
from pipeline_def.data.shards import Shards
from pipeline_def.data.order import TrainingOrder
from pipeline_def.training.loop import TrainingLoop

def read(split, batch, order=None):
    return make_dataset(
        Shards.of_pattern(f"{examples}/Split-{split}/*"),
        config=TransformConfig(size=size),
        feature_spec={},
        batch_size=batch,
        options=InputConfig(reader="indexed", cache="none"),
        order=order,
    )

with strategy.scope():
    model = build_model(
        ModelConfig(name="cnn", width=4), size=size, classes=3, mean=[128] * 3, variance=[5000] * 3
    )
    loop = TrainingLoop(
        model,
        config=TrainingConfig(epochs=4, learning_rate=1e-2),
        augmentation=AugmentationConfig(mixup=0.2),
        batch_size=16,
        steps=6,
    )
history = loop.fit(
    lambda step, part: read(
        "train", part.get_per_replica_batch_size(16), TrainingOrder.of_worker(3, step, part)
    ),
    lambda: read("eval", 16),
    log_dir=f"{target}/logs",
    checkpoint_dir=f"{target}/checkpoints",
)
hits = labels = 0
for images, ids in read("eval", 7):
    hits += int(tf.reduce_sum(tf.cast(tf.argmax(model(images), axis=1) == ids, tf.int32)))
    labels += len(ids)
print(json.dumps({**history, "accuracy_again": hits / labels}))
"""


@pytest.mark.slow
def test_training_on_two_replicas(shard_folder: ShardFolder, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _TRAINING, str(shard_folder.path), str(tmp_path), str(SIZE)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    history = json.loads(done.stdout.splitlines()[-1])
    assert len(history["loss"]) == 4
    assert history["loss"][-1] < history["loss"][0]
    # Every example of eval counts once, on whichever replica.
    best = history["val_loss"].index(min(history["val_loss"]))
    assert history["accuracy_again"] == pytest.approx(history["val_accuracy"][best], abs=1e-6)

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft

from components.contract import example
from components.contract.configuration import to_dict
from components.contract.model_run import HISTORY_FILE
from components.transform.config import TransformConfig
from pipeline_def.config.model import ModelConfig
from pipeline_def.config.trainer import TrainerConfig
from pipeline_def.config.training import TrainingConfig
from pipeline_def.data.dataset import make_dataset
from pipeline_def.data.shards import Shards
from pipeline_def.training import run_fn as trainer
from tests import nodes
from tests.conftest import SIZE
from tests.pictures import encode, picture


@dataclass(frozen=True)
class Trained:
    model: Any
    run: Path


@pytest.fixture(scope="module")
def trained(transformed: nodes.Transformed, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A model trained for a few epochs and exported by `run_fn`."""
    target = tmp_path_factory.mktemp("trained")

    @dataclass(frozen=True)
    class FnArgs:
        transform_graph_path = transformed.graph.uri
        train_files = (f"{transformed.examples.uri}/Split-train/*",)
        eval_files = (f"{transformed.examples.uri}/Split-eval/*",)
        serving_model_dir = str(target / "model")
        model_run_dir = str(target / "run")
        custom_config = to_dict(
            TrainerConfig(
                transform=TransformConfig(size=SIZE),
                model=ModelConfig(name="cnn", width=8),
                training=TrainingConfig(epochs=4, batch_size=16),
                checkpoints=str(target / "checkpoints"),
            )
        )

    Path(FnArgs.model_run_dir).mkdir()
    trainer.run_fn(FnArgs())
    return Trained(tf.saved_model.load(FnArgs.serving_model_dir), Path(FnArgs.model_run_dir))


def serve(trained: Trained, files: list[bytes]) -> dict[str, np.ndarray[Any, Any]]:
    outputs = trained.model.signatures["serving_default"](image_bytes=tf.constant(files))
    return {name: value.numpy() for name, value in outputs.items()}


def test_training_leaves_a_history_and_tensorboard_logs(trained: Trained) -> None:
    history = json.loads((trained.run / HISTORY_FILE).read_text())
    assert len(history["val_accuracy"]) == len(history["loss"]) == 4
    assert history["loss"][-1] < history["loss"][0]
    assert list(trained.run.glob("train/events.out.tfevents.*"))
    assert list(trained.run.glob("validation/events.out.tfevents.*"))


def test_raw_bytes_in_labels_and_probabilities_out(trained: Trained) -> None:
    kinds = ["JPEG", "PNG", "BMP", "GIF"]
    served = serve(trained, [encode(picture(1, height=90, width=70), kind) for kind in kinds])
    assert served["labels"].shape == served["probabilities"].shape == (4, 3)
    assert sorted(served["labels"][0]) == [b"blue", b"green", b"red"]
    np.testing.assert_allclose(served["probabilities"].sum(axis=1), 1, rtol=1e-5)
    best = served["probabilities"].argmax(axis=1)
    np.testing.assert_array_equal(served["label"], served["labels"][0][best])


def test_the_same_image_gives_the_same_answer_in_training_and_in_serving(
    trained: Trained, ingested: nodes.Ingested, transformed: nodes.Transformed
) -> None:
    records = nodes.read_examples(ingested.examples, "eval")
    raw = [record.features.feature[example.ENCODED].bytes_list.value[0] for record in records]
    dataset = make_dataset(
        Shards.of_pattern(f"{transformed.examples.uri}/Split-eval/*"),
        feature_spec=tft.TFTransformOutput(transformed.graph.uri).transformed_feature_spec(),
        config=TransformConfig(size=SIZE),
        batch_size=7,
    )
    trained_on = [tf.nn.softmax(trained.model(images, training=False)) for images, _ in dataset]
    served = serve(trained, raw)["probabilities"]
    np.testing.assert_allclose(served, np.concatenate(trained_on), atol=1e-5)


def test_examples_in_the_same_probabilities_out(trained: Trained, ingested: nodes.Ingested) -> None:
    records = nodes.read_examples(ingested.examples, "eval")
    serialized = tf.constant([record.SerializeToString() for record in records])
    files = [r.features.feature[example.ENCODED].bytes_list.value[0] for r in records]
    signature = trained.model.signatures["serving_examples"]
    np.testing.assert_allclose(
        signature(examples=serialized)["probabilities"],
        serve(trained, files)["probabilities"],
        atol=1e-6,
    )


def test_label_ids_for_evaluation_are_those_of_training(
    trained: Trained, ingested: nodes.Ingested, transformed: nodes.Transformed
) -> None:
    records = nodes.read_examples(ingested.examples, "eval")
    serialized = tf.constant([record.SerializeToString() for record in records])
    found = trained.model.signatures["transform_features"](examples=serialized)[example.LABEL_ID]
    expected = [
        record.features.feature[example.LABEL_ID].int64_list.value[0]
        for record in nodes.read_examples(transformed.examples, "eval")
    ]
    np.testing.assert_array_equal(found, expected)


def test_the_vocabulary_travels_with_the_model(
    trained: Trained, transformed: nodes.Transformed
) -> None:
    names = tft.TFTransformOutput(transformed.graph.uri).vocabulary_by_name("labels")
    served = serve(trained, [encode(picture(1), "PNG")])
    np.testing.assert_array_equal(served["labels"][0], names)


@pytest.mark.parametrize(
    ("checkpoints", "parent"),
    [
        ("gs://bucket/checkpoints", "gs://bucket/checkpoints"),
        ("/mnt/checkpoints", "/mnt/checkpoints"),
        ("minio://bucket/checkpoints", os.path.join(tempfile.gettempdir(), "checkpoints")),
    ],
)
def test_checkpoints_go_where_tensorflow_can_write(checkpoints: str, parent: str) -> None:
    arguments = SimpleNamespace(
        train_files=["a"], transform_graph_path="b", custom_config={"checkpoints": checkpoints}
    )
    assert os.path.dirname(trainer._checkpoint_dir(arguments)) == parent

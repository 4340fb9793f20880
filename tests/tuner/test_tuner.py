"""Tuner and Trainer by TFX's executors: what one finds is what the other exports."""

import functools
import json
import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow_transform as tft
import yaml
from optuna.distributions import CategoricalDistribution

from components.contract.errors import ConfigurationError
from components.contract.model_files import BEST_FILE, SEARCH_FILE, TRAINING_FILE
from components.images.options import TransformConfig
from components.trainer.config.model import ExportConfig, ModelConfig
from components.trainer.config.training import TrainerConfig, TrainingConfig
from components.trainer.input.host_calls import guard
from components.trainer.loop.checkpoint import Checkpoints
from components.trainer.preparation import apply_hyperparameters
from components.tuner.trials import Trial, TrialRunner, attempt
from tests.conftest import SIZE
from tests.trainer.input.shard_folder import Graph, ShardFolder
from tests.trainer.loop.trainer_process import cluster

# A trial other than the recipe's: what differs lies in variables of one compiled step.
START: dict[str, Any] = {
    "training.learning_rate": 0.003,
    "training.epochs": 3,
    "training.label_smoothing": 0.1,
    "model.dropout": 0.0,
}
PLAIN = TrainingConfig(batch_size=16, epochs=1, label_smoothing=0.2, folds=0)


def run_step(
    component: Any, examples: ShardFolder, target: Path, given: dict[str, Any] | None = None
) -> dict[str, list[Any]]:
    """Run the executor of a component as TFX's launcher would; return its outputs."""
    from tfx.dsl.components.base.base_executor import BaseExecutor

    transformed, graph = (component.inputs[n].type() for n in ("examples", "transform_graph"))
    transformed.uri, transformed.split_names = str(examples.path), '["train", "eval"]'
    graph.uri = "none"
    inputs = {"examples": [transformed], "transform_graph": [graph], **(given or {})}
    outputs: dict[str, list[Any]] = {}
    for name, channel in component.outputs.items():
        outputs[name] = [channel.type()]
        outputs[name][0].uri = str(target / name)
        (target / name).mkdir(parents=True)
    context = BaseExecutor.Context(tmp_dir=str(target), unique_id="1")
    component.executor_spec.executor_class(context).Do(
        inputs, outputs, dict(component.exec_properties)
    )
    return outputs


def channels() -> dict[str, Any]:
    from tfx.types import Channel, standard_artifacts

    return {
        "examples": Channel(type=standard_artifacts.Examples),
        "transform_graph": Channel(type=standard_artifacts.TransformGraph),
    }


def configure(folder: Path, training: TrainingConfig, **model: Any) -> TrainerConfig:
    return TrainerConfig(
        transform=TransformConfig(size=SIZE),
        model=ModelConfig(
            **{"name": "cnn", "width": 8, "weights": "none", "dropout": 0.5, **model}
        ),
        training=training,
        checkpoints=str(folder / "checkpoints"),
    )


@pytest.mark.slow
def test_the_chosen_trial_is_exported_and_its_file_reproduces_it(
    shard_folder: ShardFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from components import ImageTrainer, ImageTuner

    monkeypatch.setattr(tft, "TFTransformOutput", Graph)
    weights: list[Any] = []
    saved: list[Any] = []
    runners: list[TrialRunner] = []
    save = Checkpoints.save

    def export(classifier: Any, *_: Any, **__: Any) -> None:
        weights.append(classifier.model.get_weights())
        raise InterruptedError

    def fail(*_: Any, **__: Any) -> None:
        raise InterruptedError

    def count(self: Checkpoints) -> None:
        saved.append(self)
        save(self)

    def choose_1(trials: list[Trial], **_: Any) -> tuple[Trial, str]:
        return trials[1], "Trial 1 is better."

    def remember(runner: TrialRunner, *given: Any, **named: Any) -> None:
        runners.append(runner)
        attempt(runner, *given, **named)

    # TFX imports the module of run_fn anew.
    monkeypatch.setattr("components.trainer.export.signatures.export_model", export)
    monkeypatch.setattr(Checkpoints, "save", count)
    monkeypatch.setattr("components.tuner.search.choose", choose_1)
    monkeypatch.setattr("components.tuner.search.attempt", remember)
    monkeypatch.setattr("components.tuner.search.find_start", lambda *_, **__: START)
    monkeypatch.setattr(
        "components.tuner.search.find_space",
        lambda *_: {key: CategoricalDistribution([value]) for key, value in START.items()},
    )
    config = configure(tmp_path, replace(PLAIN, minutes=5))
    tuner = ImageTuner(**channels(), config=config)
    with monkeypatch.context() as killed:
        killed.setattr("components.tuner.executor.save_trained", fail)
        with pytest.raises(InterruptedError):
            run_step(tuner, shard_folder, tmp_path / "killed")
    tuned_outputs = run_step(tuner, shard_folder, tmp_path / "tuner")
    # Rate, length, smoothing and dropout differ in variables of one compiled step.
    assert len(runners[0].built) == 1
    # At the end of each of the two trials; an epoch is short.
    assert len(saved) == 2
    # The study is over once the artifacts are written.
    assert not [*(tmp_path / "checkpoints").iterdir()]
    tuned = Path(tuned_outputs["tuner_run"][0].uri)
    names = {"hyperparameters": "best_hyperparameters", "tuner_run": "tuner_run"}
    given = {name: tuned_outputs[output] for name, output in names.items()}
    outputs = {name: tuner.outputs[output] for name, output in names.items()}

    def train(target: Path, component: Any, **more: Any) -> dict[str, Any]:
        with pytest.raises(InterruptedError):
            run_step(component, shard_folder, target, **more)
        facts: dict[str, Any] = json.loads((target / "model_run" / TRAINING_FILE).read_text())
        return facts

    facts = train(tmp_path / "1", ImageTrainer(**channels(), **outputs, config=config), given=given)
    # Not a step is trained again.
    assert len(saved) == 2
    search = facts["search"]
    assert search == json.loads((tuned / SEARCH_FILE).read_text())["search"]
    assert [trial["state"] for trial in search["trials"]] == ["complete", "complete"]
    assert facts["config"]["training"]["epochs"] == facts["phases"][0]["epochs"] == 3
    best = yaml.safe_load((tuned / BEST_FILE).read_text())
    assert best["training"] == {"epochs": 3, "label_smoothing": 0.1, "learning_rate": 0.003}
    plain = configure(tmp_path, replace(PLAIN, **best["training"]), **best["model"])
    train(tmp_path / "2", ImageTrainer(**channels(), config=plain))
    # By their values alone, as a pipeline of TFX's own Tuner would pass them.
    values = {"hyperparameters": given["hyperparameters"]}
    channel = {"hyperparameters": outputs["hyperparameters"]}
    alone = ImageTrainer(**channels(), **channel, config=replace(config, checkpoints=""))
    train(tmp_path / "3", alone, given=values)
    for others in weights[1:]:
        for first, other in zip(weights[0], others, strict=True):
            np.testing.assert_array_equal(first, other)

    def refuse(target: Path, training: TrainingConfig, reason: str) -> None:
        component = ImageTrainer(**channels(), **outputs, config=configure(tmp_path, training))
        with pytest.raises(ConfigurationError, match=reason):
            run_step(component, shard_folder, target, given)

    refuse(tmp_path / "4", replace(PLAIN, balance="weights"), r"with training\.balance none, so")
    text = (tuned / SEARCH_FILE).read_text()
    (tuned / SEARCH_FILE).write_text(text.replace('"images": "', '"images": "0'))
    refuse(tmp_path / "5", PLAIN, "has trained with other images, so")


def test_a_search_goes_on_with_the_folds_of_the_attempt_before(
    shard_folder: ShardFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other minutes could afford another number of them, and all trials would be lost."""
    from components import ImageTuner

    def search(*_: Any, folds: int, checkpoint_dir: str, **__: Any) -> None:
        raise InterruptedError(f"{folds} folds in {checkpoint_dir}")

    (tmp_path / "study" / "folds-7").mkdir(parents=True)
    prepared = SimpleNamespace(data=None, folds=0, build=None)
    monkeypatch.setattr("components.tuner.executor.prepare", lambda *_: prepared)
    monkeypatch.setattr("components.tuner.executor.checkpoint_dir", lambda _: f"{tmp_path}/study")
    monkeypatch.setattr("components.tuner.executor.search", search)
    tuner = ImageTuner(**channels(), config=configure(tmp_path, replace(PLAIN, minutes=5)))
    with pytest.raises(InterruptedError, match=r"7 folds in .*/study/folds-7"):
        run_step(tuner, shard_folder, tmp_path / "tuner")


def test_a_search_leaves_no_images_in_memory(
    shard_folder: ShardFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trainer follows in the same process, and needs the memory for its own."""
    from components import ImageTuner

    kept: list[Any] = []

    def search(*_: Any, **__: Any) -> None:
        pixels = np.zeros(9, np.uint8)
        kept.append(weakref.ref(pixels))
        guard(functools.partial(np.add, pixels))
        raise InterruptedError

    monkeypatch.setattr("components.tuner.executor.read_config", search)
    tuner = ImageTuner(**channels(), config=configure(tmp_path, replace(PLAIN, minutes=5)))
    with pytest.raises(InterruptedError):
        run_step(tuner, shard_folder, tmp_path / "tuner")
    assert kept[0]() is None


def test_hyperparameters_of_another_search_are_refused() -> None:
    config = configure(Path("out"), PLAIN)
    given = {"training.folds": 5, "training.learning_rate": 0.3}
    changed = apply_hyperparameters(config, {"values": given})
    assert changed == replace(config, training=replace(PLAIN, folds=5, learning_rate=0.3))
    with pytest.raises(ConfigurationError, match="The hyperparameters name 'units', which is not"):
        apply_hyperparameters(config, {"values": {"units": 3}})


@pytest.mark.slow
def test_a_search_of_several_workers_or_without_a_time_is_refused(
    shard_folder: ShardFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from components import ImageTrainer, ImageTuner

    with pytest.raises(ConfigurationError, match=r"training.minutes is not set"):
        ImageTuner(**channels(), config=configure(tmp_path, PLAIN))
    config = configure(tmp_path, replace(PLAIN, minutes=5))
    with pytest.raises(ConfigurationError, match="is the time of an ImageTuner: add one"):
        ImageTrainer(**channels(), config=config)
    # What is exported of the trials is no reason to search again.
    more = replace(config, export=ExportConfig(formats=["onnx"]))
    # But for the scores of folds.
    known = replace(config, export=ExportConfig(false_alarms=0.1))
    first, other, scored = (ImageTuner(**channels(), config=c) for c in (config, more, known))
    assert first.exec_properties == other.exec_properties
    assert '"false_alarms": 0.1' in scored.exec_properties["custom_config"]
    monkeypatch.setenv("TF_CONFIG", cluster(2)[0]["TF_CONFIG"])
    with pytest.raises(ConfigurationError, match="searches on one machine, but TF_CONFIG lists 2"):
        run_step(first, shard_folder, tmp_path / "tuner")

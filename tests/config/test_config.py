from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.contract.configuration import from_json, to_json
from components.contract.errors import ServiceError, UserError
from components.ingest.config import IngestConfig
from components.transform.config import TransformConfig
from pipeline_def.config.command_line import exit_status, parse
from pipeline_def.config.config import Config
from pipeline_def.config.model import ModelConfig
from pipeline_def.config.network_choice import resolve
from tests.shared_parsers import make_parser


def parsed(*argv: str) -> Config:
    return parse(make_parser("runner.py", "Runs."), argv)[0]


def test_defaults_of_the_command_line_are_those_of_the_classes() -> None:
    assert parsed() == Config()


def test_options_override_the_file_before_them(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("data: /images\ntraining: {epochs: 3, batch_size: 8}\n")
    config = parsed("--config", str(file), "--training.epochs", "7")
    assert (config.data, config.training.epochs, config.training.batch_size) == ("/images", 7, 8)


def test_splits_from_the_command_line() -> None:
    config = parsed("--ingest.splits", '{"train": 0.5, "eval": 0.25, "test": 0.25}')
    assert config.ingest.splits == {"train": 0.5, "eval": 0.25, "test": 0.25}


WRONG = {
    "unknown option": (["--foo", "1"], "--foo"),
    "unknown field": (["--training.epoch", "1"], "--training.epoch"),
    "wrong type": (["--training.epochs", "many"], "epochs is many: it must be a whole number"),
    "no value": (["--training.epochs"], "--training.epochs needs a value: a whole number"),
    "a value of nothing": (["photos"], "photos is no option"),
    "a misspelt choice": (["--training.optimizer", "adamm"], "did you mean adam"),
    "a misspelt choice in a list": (["--evaluation.slices", "[clas]"], "did you mean class"),
    "a field of a list that is not there": (
        ["--evaluation.thresholds", "[{metrc: loss}]"],
        "evaluation.thresholds has no field metrc: did you mean metric",
    ),
    "a wrong value in a list": (
        ["--evaluation.thresholds", "[{metric: los, at_most: 1}]"],
        "evaluation.thresholds.metric is los: did you mean loss",
    ),
    "no numbers for names": (
        ["--ingest.splits", "0.8"],
        "ingest.splits is 0.8: it must be a number for each name",
    ),
    "a value for a section": (["--training", "3"], "training is a section: set its options"),
    "not one of the choices": (["--model.name", "vgg"], "model.name is 'vgg': did you mean .*cnn"),
    "out of range": (["--transform.size", "4"], "transform.size is 4: it must be from 8"),
    "fractions that add up to more": (
        ["--ingest.splits", '{"train": 0.9, "eval": 0.2}'],
        "must add up to 1",
    ),
    "no eval split": (["--ingest.splits", '{"train": 1}'], "at least train and eval"),
    "weights without a model for them": (
        ["--model.name", "cnn", "--model.weights", "imagenet"],
        "cnn has no such weights",
    ),
    "no interleave": (
        ["--input.interleave", "0"],
        "input.interleave is 0: it must be from 1 to 1,024",
    ),
    "negative threads": (["--input.threads", "-1"], "input.threads is -1: it must be from 0"),
    "share of waiting above one": (["--input.max_wait", "2"], "input.max_wait is 2.0: it must be"),
    "a cache that the reader cannot use": (
        ["--input.reader", "streamed", "--input.cache", "encoded"],
        "read by input.reader indexed, not streamed",
    ),
    "a folder without a cache for it": (
        ["--input.cache_folder", "/ssd"],
        "it needs input.cache file",
    ),
    "originals that nothing is cut out of": (
        ["--transform.storage", "originals"],
        "augmentation.min_crop_area is 1, and transform.storage 'originals'.*set it to 0.08",
    ),
    "pixels kept of originals": (
        ["--transform.storage=originals", "--augmentation.min_crop_area=0.1", "--input.cache=file"],
        "input.cache is 'file', and transform.storage 'originals'.*choose input.cache none",
    ),
    "originals with a margin": (
        ["--transform.storage", "originals", "--transform.margin", "8"],
        "transform.margin is 8, and transform.storage 'originals'.*leave transform.margin at 0",
    ),
    "originals with bars": (
        ["--transform.storage", "originals", "--transform.fit", "letterbox"],
        "transform.fit is 'letterbox', and transform.storage 'originals'.*crop or stretch",
    ),
    "large margin": (["--transform.margin", "300"], "transform.margin is 300: it must be from 0"),
    "negative steps": (["--training.profile_steps", "-1"], "training.profile_steps is -1"),
    "no such file": (["--config", "/no/such.yaml"], "/no/such.yaml"),
}


@pytest.mark.parametrize(("argv", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_is_one_line_that_names_it(argv: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        parsed(*argv)
    assert "\n" not in str(caught.value)


RESOLVED: dict[str, tuple[int, int, dict[str, Any], int, str]] = {
    "digits": (8, 1_437, {}, 32, "cnn"),
    "CIFAR": (32, 50_000, {}, 32, "resnet9"),
    "a small part of CIFAR": (32, 1_000, {}, 32, "cnn"),
    "many photographs": (375, 8_000, {}, 224, "mobilenet_v2"),
    "too few to start from random weights": (375, 7_999, {}, 96, "cnn"),
    "few, but pretrained": (375, 160, {"model": ModelConfig(weights="w.h5")}, 224, "mobilenet_v2"),
    "small, but from photographs": (
        32,
        10,
        {"model": ModelConfig(weights="imagenet")},
        224,
        "mobilenet_v2",
    ),
    "many thumbnails": (90, 8_000, {}, 96, "mobilenet_v2"),
    "size given": (375, 8_000, {"transform": TransformConfig(size=48)}, 48, "resnet9"),
    "large size given": (375, 160, {"transform": TransformConfig(size=300)}, 300, "cnn"),
    "model given": (375, 160, {"model": ModelConfig(name="mobilenet_v2")}, 224, "mobilenet_v2"),
    "a model with a size of its own": (
        375,
        160,
        {"model": ModelConfig(name="efficientnet_v2_b3", weights="imagenet")},
        300,
        "efficientnet_v2_b3",
    ),
    "a network of the user's": (
        375,
        160,
        {"model": ModelConfig(build_fn="my.model")},
        224,
        "auto",
    ),
}


@pytest.mark.parametrize(
    ("side", "images", "given", "size", "name"), RESOLVED.values(), ids=RESOLVED.keys()
)
def test_size_and_model_follow_the_images(
    side: int, images: int, given: dict[str, Any], size: int, name: str
) -> None:
    config, _ = resolve(Config(**given), shorter_side=side, images=images)
    assert (config.transform.size, config.model.name) == (size, name)


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (ServiceError("No answer."), 2, "runner.py: error: No answer.\n"),
        (KeyboardInterrupt(), 130, "runner.py: stopped.\n"),
    ],
)
def test_the_status_of_a_mistake_and_of_ctrl_c(
    capsys: pytest.CaptureFixture[str], error: BaseException, status: int, said: str
) -> None:
    def command() -> int:
        raise error

    assert exit_status(command, program="runner.py", stopped="stopped.") == status
    assert capsys.readouterr().err == said


def test_ingest_config_survives_json() -> None:
    config = IngestConfig(splits={"train": 0.5, "eval": 0.5}, threads=7)
    assert from_json(IngestConfig, to_json(config)) == config

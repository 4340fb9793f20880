import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.contract.configuration import to_dict
from components.contract.errors import ConfigurationError, UserError
from pipeline_def.config.command_line import parse
from pipeline_def.config.config import Config
from pipeline_def.config.kubeflow import StepConfig
from pipeline_def.config.options import list_options
from pipeline_def.local.commands.run import name_folder
from tests.config.command import parsed


def test_defaults_of_the_command_line_are_those_of_the_classes() -> None:
    assert parsed() == Config()


def test_the_command_line_overrides_files_and_later_files_earlier_ones(tmp_path: Path) -> None:
    first, second = tmp_path / "1.yaml", tmp_path / "2.yaml"
    first.write_text("data: /images\ntraining: {epochs: 3, batch_size: 8}\n")
    second.write_text("training.batch_size: 9\n")
    files = ["--config", str(first), f"--config={second}"]
    assert parsed("--data", "/mine", *files).data == "/mine"
    for argv in (["--training.epochs", "7", *files], [*files, "--training.epochs=7"]):
        config = parsed(*argv)
        chosen = (config.data, config.training.epochs, config.training.batch_size)
        assert chosen == ("/images", 7, 9)
        assert config.given == ["data", "training.batch_size", "training.epochs"]


VALUES: dict[str, tuple[list[str], Any]] = {
    "training.learning_rate": (["--training.learning_rate", "2"], 2.0),
    "training.deterministic": (["--training.deterministic", "null"], None),
    "training.calibrate": (["--training.calibrate", "yes"], True),
    "ingest.splits": (
        ["--ingest.splits", '{"train": 0.5, "eval": 0.5}'],
        {"train": 0.5, "eval": 0.5},
    ),
    # Text stays text, whatever it looks like in YAML.
    "data": (["--data", "2020-01-01"], "2020-01-01"),
    "name": (["--name", "007"], "007"),
    "transform.size": (["--transform.size", "null"], None),
    "beam_pipeline_args": (["--beam_pipeline_args", "[--a, --b]"], ["--a", "--b"]),
    # A key sets an entry of a mapping.
    "kubeflow.steps": (
        ["--kubeflow.steps.all.cpu", "2", "--kubeflow.steps.all.env.A", "8"],
        {"all": StepConfig(cpu=2.0, env={"A": "8"})},
    ),
}


@pytest.mark.parametrize(("option", "argv", "value"), [(k, *v) for k, v in VALUES.items()])
def test_a_value_from_the_command_line_or_a_file(
    tmp_path: Path, option: str, argv: list[str], value: Any
) -> None:
    config = parsed(*argv)
    assert (_get(config, option), config.given) == (value, [option])
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({option: _get(to_dict(config), option)}))
    assert parsed("--config", str(file)) == config


def _get(config: Any, option: str) -> Any:
    for name in option.split("."):
        config = config[name] if isinstance(config, dict) else getattr(config, name)
    return config


def test_options_of_a_command() -> None:
    extra = {"to": 1, "compare": 2, "json": 0, "model": 1}
    others = list_options().keys() - {"data"}
    argv = ["--json", "--compare", "A", "B", "--to=x"]
    options = parse(argv, prog="run.py", usage="", only=others, extra=extra)[1]
    assert options == {"to": "x", "compare": ["A", "B"], "json": True, "model": None}
    for argument, value in (("--json", True), ("--json=true", True), ("--json=False", False)):
        assert parse([argument], prog="run.py", usage="", extra=extra)[1]["json"] is value
    for wrong, message in (
        (["--compare", "A"], "--compare needs 2 values."),
        (["--to"], "--to needs a value."),
        (["--json=0"], "--json is '0': it must be true or false."),
        (["--data", "x"], "Unknown option '--data'. See run.py --help-all."),
        (["--no-such"], "Unknown option '--no-such'. See run.py --help-all."),
    ):
        with pytest.raises(ConfigurationError) as caught:
            parse(wrong, prog="run.py", usage="", only=others, extra=extra)
        assert str(caught.value) == message


# Arguments → a pattern of what is said.
WRONG = {
    "--epochs=3": "Unknown option '--epochs'. Did you mean '--training.epo",
    "--training.epochs many": "training.epochs is 'many': it must be a whole number of at least 1.",
    "--data --cache=1": "--data needs a value.",
    "--training.optimizer adamm": "'adamm': it must be adam, adamw or sgd. Did you mean 'adam'?",
    "--evaluation.thresholds '[{metrc: loss}]'": "no field 'metrc'. Did you mean 'metric'",
    "--evaluation.thresholds '[{at_most: 1}]'": r"evaluation.thresholds\[0\] needs a value for",
    "--evaluation.thresholds '[{metric: los, at_most: 1}]'": "Did you mean 'loss'",
    "--kubeflow.steps.Trainer.memry 8": "Trainer has no field 'memry'. Did you mean 'memory'",
    "--kubeflow.steps.Trainer.memory 16GiB": "kubeflow.steps.Trainer.memory is '16GiB': write it",
    "--kubeflow.steps '{Trainer: {volumes: {My_Claim: /mnt}}}'": "volumes names 'My_Claim':",
    "--data ph\udcffotos": r"data is 'ph\\udcffotos': it must be UTF-8 text; rename a folder",
    "--ingest.splits 0.8": "splits is 0.8: it must be a number for each name, such as {train:",
    "--training 3": "training is a section: set its options",
    "--ingest.splits '{train:0.8}'": "ingest.splits.train:0.8 is null: it must be a number. Put a",
    "--model.name resnet5": "it must be one of auto, cnn, .* Did you mean 'resnet50'",
    "--model.weights https://secret@h/x": "model.weights has a password in its URL",
    "--beam_pipeline_args '[--flink_master=http://me:secret@h]'": "beam_pipeline_args has a",
    "--model.name mobilenet_v2 --model.width 8": "model.width is 8, but mobilenet_v2 has widths",
    "--model.build_fn my.network --model.dropout 0.5": "model.dropout is 0.5, but model.build_fn",
    "--ingest.splits '{train: 0.9, eval: 0.2}'": "must add up to 1",
    "--ingest.splits '{train: 1}'": "ingest.splits is {train: 1.0}: it needs at least train and",
    "--model.name cnn --model.weights imagenet": "model.name cnn has no ImageNet weights",
    "--input.cache_folder /ssd": "it needs input.cache file",
    "--input.cache file": "set input.cache_folder",
    "--training.optimizer http://me:secret@h": "training.optimizer is 'http://h'",
}


@pytest.mark.parametrize(("argv", "message"), WRONG.items())
def test_a_mistake_is_one_line_that_names_it(argv: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        parsed(*shlex.split(argv))
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("argv", "option"),
    [
        ("--learning-rate=0.1", "training.learning_rate"),
        ("epochs=3", "training.epochs"),
        ("data=photos", "data"),
        ("--help=x --help batch-size", "training.batch_size"),
    ],
)
def test_an_option_without_its_section_or_dashes(argv: str, option: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"Did you mean '(--)?{option}'\?"):
        parsed(*name_folder(argv.split()))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("training: {epoch: 3}", "unknown option 'training.epoch'. Did you mean 'training.epochs'"),
        ("trainng: {epochs: 3}", "unknown option 'trainng'. Did you mean 'training'?"),
        ("nonsense: 1", "unknown option 'nonsense'. See --help-all"),
        ("training: 3", "training is 3, but training is a section: set its options, such as"),
        ("training:", "training is empty, but training is a section: set its options, such as"),
        ("- data", "must contain options by name"),
        ("data: [", "is not YAML in line 1: "),
        ("model: {width: 8}\nmodel: {dropout: 0}", "is not YAML in line 2: 'model' is there twice"),
        ("training: {epochs: 3, epochs: 4}", "'epochs' is there twice"),
        ("training: {epochs: 3}\ntraining.epochs: 4", "sets training.epochs and training.epochs"),
        (
            "kubeflow.steps.all.cpu: 1\nkubeflow: {steps: {all: {gpus: 1}}}",
            "sets kubeflow.steps.all.cpu and kubeflow.steps: set it in one place",
        ),
        ("data: \x00", "is not YAML"),
        ("training: {epochs: true}", "training.epochs is True: it must be a whole number"),
        ('training: {epochs: "5"}', "training.epochs is '5': it must be a whole number"),
        ("training: {learning_rate: .nan}", "training.learning_rate is nan: it must be a finite"),
        ("ingest: {shard_mib: 1.0e-7}", "ingest.shard_mib is 1e-07: it must be a number from 0.1"),
        ("ingest: {splits: {../x: 0.5, train: 0.25, eval: 0.25}}", "a split '../x'"),
        ("evaluation: {thresholds: [{metric: auc, at_least: 1.5}]}", "at_least is 1.5: it must be"),
        ("evaluation: {thresholds: [{metric: auc, at_least: 1, at_most: 0.1}]}", "at_most, 0.1"),
        ("name: ../x", "name is '../x'"),
        ("data: ''", "data is empty"),
        ('data: "\\0"', "without NUL"),
        (b"\xff\xfe\x00", "is not a text file in UTF-8"),
    ],
)
def test_a_file_with_a_mistake(tmp_path: Path, content: str | bytes, message: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigurationError) as caught:
        parsed("--config", str(file))
    assert str(caught.value).startswith(str(file))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_an_empty_one(tmp_path: Path) -> None:
    for path in (".", "none.yaml"):
        with pytest.raises(ConfigurationError, match="Cannot read "):
            parsed("--config", str(tmp_path / path))
    (tmp_path / "config.yaml").write_text("# nothing yet\n")
    assert parsed(f"--config={tmp_path}/config.yaml", "--data", "x").data == "x"


def test_hyphens_in_options() -> None:
    assert parsed("--training.batch-size", "3").training.batch_size == 3
    with pytest.raises(ConfigurationError, match="Did you mean"):
        parsed("--training.batch-siz", "3")

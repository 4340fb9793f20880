from pathlib import Path

import pytest

from components.contract.errors import ConfigurationError
from pipeline_def.local.commands.run import name_folder
from tests.config.command import parsed


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

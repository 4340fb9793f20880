from __future__ import annotations

from pathlib import Path

import pytest

from components.contract.errors import ConfigurationError
from pipeline_def.config.command_line import parse
from pipeline_def.config.mistakes import check_arguments, check_file, find_meant
from pipeline_def.config.options import list_options
from tests.shared_parsers import make_parser


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("epochs", ["training.epochs"]),
        ("training.epoch", ["training.epochs"]),
        ("trainin.epochs", ["training.epochs"]),
        ("quality", ["transform.quality", "ingest.quality"]),
        ("learning-rate", ["training.learning_rate"]),
        ("transform.qualty", ["transform.quality"]),
        ("ouput", ["output"]),
        ("moment", ["training.momentum"]),
        ("lr", []),
    ],
)
def test_what_was_meant(name: str, meant: list[str]) -> None:
    assert set(find_meant(name, list_options())) == set(meant)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--epochs", "There is no option --epochs: did you mean --training.epochs?"),
        ("--epochs=3", "There is no option --epochs: did you mean --training.epochs?"),
        ("--lr", "There is no option --lr: run.py --help-all lists them all."),
    ],
)
def test_an_option_that_does_not_exist(argument: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_arguments("run.py", ["--data", "x", argument], list_options())
    assert str(caught.value) == message


def test_entries_of_options_that_hold_entries_by_name_are_options() -> None:
    check_arguments("run.py", ["--kubeflow.steps.Trainer", "--beam_pipeline_args+"], list_options())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("training: {epoch: 3}", "there is no option training.epoch: did you mean training.epochs"),
        ("trainng: {epochs: 3}", "there is no option trainng: did you mean training?"),
        ("training.epoch: 3", "there is no option training.epoch: did you mean training.epochs?"),
        ("nonsense: 1", "there is no option nonsense: see --help-all"),
        ("training: 3", "training is 3, but it is a section: write its options below it"),
        ("training:", "training is empty, but it is a section: write its options below it"),
        ("- data", "must hold options by their names"),
        ("data: [", "is not YAML in line 1: "),
        ("data: \x00", "is not YAML"),
        (b"\xff\xfe\x00", "is not a text file in UTF-8"),
    ],
)
def test_a_file_with_a_mistake(tmp_path: Path, content: str | bytes, message: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigurationError) as caught:
        check_file(str(file))
    assert str(caught.value).startswith(str(file))
    assert message in str(caught.value)


@pytest.mark.parametrize("path", [".", "none.yaml"])
def test_no_file(tmp_path: Path, path: str) -> None:
    with pytest.raises(ConfigurationError, match="Cannot read "):
        check_file(str(tmp_path / path))


@pytest.mark.parametrize("content", ["", "# nothing yet\n"])
def test_a_file_that_says_nothing(tmp_path: Path, content: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(content)
    argv = [f"--config={file}", "--data", "x"]
    assert parse(make_parser("run.py", "Runs."), argv)[0].data == "x"

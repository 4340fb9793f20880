from pathlib import Path

import pytest

from components.contract.error_messages import find_similar
from components.contract.errors import ConfigurationError
from pipeline_def.config.options import list_options
from pipeline_def.local.commands.run import name_folder
from tests.config.command import parsed


@pytest.mark.parametrize(
    ("argv", "option"),
    [
        # Keras, fastai, timm and Ultralytics say so.
        ("--training.lr=0.1", "training.learning_rate"),
        ("--lr0=0.1", "training.learning_rate"),
        ("--imgsz=64", "transform.size"),
        ("--img-size=64", "transform.size"),
        ("--batch=8", "training.batch_size"),
        ("--num_epochs=8", "training.epochs"),
        ("epochs=3", "training.epochs"),
        ("imgsz=3", "transform.size"),
        ("data=photos", "data"),
        ("--help=x --help bs", "training.batch_size"),
    ],
)
def test_what_other_libraries_call_an_option(argv: str, option: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"Did you mean '(--)?{option}'\?"):
        parsed(*name_folder(argv.split()))


@pytest.mark.parametrize(
    ("name", "similar"),
    [
        ("epochs", ["training.epochs"]),
        ("training.epoch", ["training.epochs"]),
        ("trainin.epochs", ["training.epochs"]),
        ("quality", ["transform.quality", "ingest.quality"]),
        ("learning-rate", ["training.learning_rate"]),
        ("transform.qualty", ["transform.quality"]),
        ("ouput", ["output"]),
        ("patien", ["training.patience"]),
        ("lr", []),
    ],
)
def test_suggestions_for_a_misspelled_option(name: str, similar: list[str]) -> None:
    assert set(find_similar(name, list_options())) == set(similar)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("training: {epoch: 3}", "unknown option 'training.epoch'. Did you mean 'training.epochs'"),
        ("trainng: {epochs: 3}", "unknown option 'trainng'. Did you mean 'training'?"),
        ("training.epoch: 3", "unknown option 'training.epoch'. Did you mean 'training.epochs'?"),
        ("nonsense: 1", "unknown option 'nonsense'. See --help-all"),
        ("training: 3", "training is 3, but training is a section: set its options, such as"),
        ("training:", "training is empty, but training is a section: set its options, such as"),
        ("training: {epochs: many}", "training.epochs is 'many': it must be a whole number"),
        ("- data", "must contain options by name"),
        ("lr: 0.1", "unknown option 'lr'. Did you mean 'training.learning_rate'?"),
        ("data: [", "is not YAML in line 1: "),
        ("model: {width: 8}\nmodel: {dropout: 0}", "is not YAML in line 2: 'model' is there twice"),
        ("training: {epochs: 3, epochs: 4}", "'epochs' is there twice"),
        ("training: {epochs: 3}\ntraining.epochs: 4", "sets training.epochs and training.epochs"),
        (
            "kubeflow.steps.all.cpu: 1\nkubeflow: {steps: {all: {gpus: 1}}}",
            "sets kubeflow.steps.all.cpu and kubeflow.steps: set it in one place",
        ),
        ("data: \x00", "is not YAML"),
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


@pytest.mark.parametrize("path", [".", "none.yaml"])
def test_no_file(tmp_path: Path, path: str) -> None:
    with pytest.raises(ConfigurationError, match="Cannot read "):
        parsed("--config", str(tmp_path / path))


@pytest.mark.parametrize("content", ["", "# nothing yet\n"])
def test_an_empty_file(tmp_path: Path, content: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(content)
    assert parsed(f"--config={file}", "--data", "x").data == "x"


def test_hyphens_in_options() -> None:
    assert parsed("--training.batch-size", "3").training.batch_size == 3
    with pytest.raises(ConfigurationError, match="Did you mean"):
        parsed("--training.batch-siz", "3")

import pytest

from components.contract.errors import ConfigurationError
from pipeline_def.config.options import list_options, list_sections, print_requested_help
from tests.config.command import parsed


def shown(capsys: pytest.CaptureFixture[str], *argv: str, hidden: tuple[str, ...] = ()) -> str:
    options = {name: option for name, option in list_options().items() if name not in hidden}
    assert print_requested_help(argv, "The usage.", prog="run.py", options=options)
    return capsys.readouterr().out


def test_all_options_with_default_and_reason(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "--help-all", hidden=("output",))
    assert max(map(len, text.splitlines())) <= 100
    words = " ".join(text.split())
    for option in list_options().values():
        assert option.text, f"{option.name} says nothing"
        assert (f"--{option.name} " in words) == (option.name != "output")
    for section, sentence in list_sections().items():
        assert f"{section}: {sentence}" in words
    assert "--ingest.shard_mib a number from 0.1 to 1,048,576; default 128.0 Size of" in words
    assert "<class" not in words
    assert "Literal" not in words


def test_a_section_an_option_and_the_fields_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "--help", "model")
    assert "--model.name" in text
    assert "--training" not in text
    text = shown(capsys, "-h", "--model.name")
    assert "--model.weights" not in text
    text = shown(capsys, "--help", "evaluation.thresholds")
    assert "evaluation.thresholds.at_least  a number of at least 0; default unset" in text
    with pytest.raises(ConfigurationError, match=r"topic 'modl'\. Did you mean 'model"):
        shown(capsys, "--help", "modl")
    text = " ".join(shown(capsys, "--help", "training.epochs").split())
    assert "default 20; with recipe small 12 to 20, cifar 15 to 40, photos 20 to 60, " in text


def test_a_command_line_that_asks_for_help_is_not_parsed_and_help_fits_on_a_screen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        parsed("--nonsense", "--help")
    assert caught.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], len(lines) < 8) == ("The usage.", True)
    assert "run.py --help SECTION, one of ingest, " in " ".join(lines)
    assert lines[-1].endswith("--help-all.")

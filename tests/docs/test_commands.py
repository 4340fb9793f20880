"""Every command, option, file, test and link in the documentation exists."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from components.trainer.config.recipes import resolve
from pipeline_def.commands import COMMANDS
from pipeline_def.config.command_line import parse
from pipeline_def.config.options import list_options, list_sections
from tests.docs.command_lines import (
    RUN,
    RUN_ELSEWHERE,
    check_arguments,
    is_parsed,
    name_program,
    stopped_runners,
)
from tests.docs.markdown import PAGES, ROOT, Code, Command, find_commands, read_page
from tests.docs.names import find_broken_links, find_unknown_names
from tests.files import write_files


def find_mistakes(commands: list[Command]) -> Iterator[str]:
    """Yield a sentence for each command that is wrong, or that nothing runs or parses."""
    # Parsing takes 50 ms, so a command that stands twice is parsed once.
    parsed = {text: check_arguments(text) for text in {command.text for command in commands}}
    for command in commands:
        if mistake := parsed[command.text] or find_missing_test(command):
            yield f"{command.where}: {command.text}: {mistake}"


def find_missing_test(command: Command) -> str:
    """Return why nothing runs or parses a command, or ""."""
    program, _ = name_program(command.text)
    if command.tested_by:
        is_there = (ROOT / command.tested_by).is_file()
        return "" if is_there else f"there is no {command.tested_by}"
    known = command.needs or program in (*RUN, *RUN_ELSEWHERE) or is_parsed(program)
    return "" if known else f"no test knows {program}"


def list_commands(code: list[Code]) -> list[Command]:
    return [command for piece in code for command in find_commands(piece)]


@pytest.fixture(scope="module")
def code() -> list[Code]:
    """All code of the documentation."""
    return [piece for page in PAGES for piece in read_page(page)]


def test_every_command_is_right_and_is_run_or_parsed(
    code: list[Code], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = list_commands(code)
    assert len(commands) > 60
    files = {piece.name: piece.text for piece in code if piece.name}
    monkeypatch.chdir(write_files(tmp_path, files))
    with stopped_runners():
        mistakes = list(find_mistakes(commands))
    assert not mistakes, "\n".join(mistakes)


def test_what_is_named_exists(code: list[Code]) -> None:
    mistakes = [mistake for piece in code for mistake in find_unknown_names(piece)]
    for page in PAGES:
        mistakes += find_broken_links((ROOT / page).read_text(encoding="utf-8"), page)
    for path in (*ROOT.glob("components/**/*.py"), *ROOT.glob("pipeline_def/**/*.py")):
        for named in re.findall(r"`local_runner\.py ([a-z-]+)", path.read_text(encoding="utf-8")):
            mistakes += [] if named in COMMANDS else [f"{path}: there is no command {named}"]
    assert not mistakes, "\n".join(mistakes)


def test_every_configuration_is_accepted(code: list[Code], tmp_path: Path) -> None:
    names = {*list_options(), *list_sections()}
    seen = 0
    for piece in code:
        if piece.language == "yaml" and names & next(yaml.safe_load_all(piece.text)).keys():
            file = tmp_path / "file.yaml"
            file.write_text(piece.text, encoding="utf-8")
            config, _ = parse(["--config", str(file)], prog="", usage="")
            resolve(config, shorter_side=100, images=3_000)
            assert config.model.weights != "imagenet" or piece.marks, "needs the internet"
            seen += 1
        elif piece.language == "json":
            json.loads(piece.text)
    assert seen >= 7

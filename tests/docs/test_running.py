"""Run the documentation's commands in a copy of the repository, after two whole runs.

The runs make what other commands need: images, models, records.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.docs.command_lines import RUN, name_program
from tests.docs.markdown import PAGES, Command, find_commands, read_page
from tests.pictures import write_folder
from tests.repository import copy_repository

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("documented commands")]

CODE = [piece for page in PAGES for piece in read_page(page)]
ALL = [command for piece in CODE for command in find_commands(piece)]
WHOLE_RUNS = ("uv run local_runner.py", "uv run local_runner.py --config photos.yaml")


def is_run(command: Command) -> bool:
    """Whether a command is run here; others are parsed, or need what there is not."""
    program, arguments = name_program(command.text)
    if command.needs or command.tested_by or command.text in WHOLE_RUNS:
        return False
    if program == "local_runner.py":
        return arguments[0] in ("inspect", "predict", "runs", "--help")
    return program in RUN


def kind_of(command: Command) -> str:
    program, arguments = name_program(command.text)
    runner = arguments[:1] + ["--compare"] * ("--compare" in arguments)
    return " ".join([program, *(runner if program == "local_runner.py" else ())])


# The first of each kind; test_commands.py parses all of them.
COMMANDS = {kind_of(command): command for command in reversed(ALL) if is_run(command)}


@dataclass(frozen=True)
class Place:
    root: Path
    summary: dict[str, Any]

    def run(self, command: str, *more: str) -> str:
        words, env = ["bash", "-c", command, *more], _environment()
        done = subprocess.run(
            words, cwd=self.root, env=env, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def fill(self, text: str) -> str:
        """Put what there is here in the place of DIR, OUT, the third run and the like."""
        # One class, as predicting all images takes long.
        text = text.replace("predict DIR", "predict output/digits/sample/7")
        values = {"DIR": "output/digits/sample", "OUT": "output/digits"}
        values |= dict.fromkeys(("1 2", "1 3"), "1 photos-run")
        values["VERSION"] = Path(self.summary["pushed_model"]).name
        return re.sub(r"\b(DIR|OUT|VERSION|1 [23])\b", lambda match: values[match[0]], text)


def _environment() -> dict[str, str]:
    """Let `uv run` take the environment of these tests, and install nothing into it.

    Nothing listens at the proxy's port: no run downloads weights.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    kept |= {"https_proxy": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}
    # gRPC would ask the proxy for this machine, too.
    kept |= {"no_proxy": "localhost", "NO_PROXY": "localhost"}
    return {**kept, "UV_PROJECT_ENVIRONMENT": sys.prefix, "UV_NO_SYNC": "1", "UV_OFFLINE": "1"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    root = copy_repository(tmp_path_factory.mktemp("documented") / "repository")
    _write_photos(root)
    assert {command.text for command in ALL} >= set(WHOLE_RUNS)
    for command in ("git init --quiet", *WHOLE_RUNS):
        Place(root, {}).run(command)
    return Place(root, json.loads((root / "output" / "digits" / "summary.json").read_text()))


def _write_photos(root: Path) -> None:
    write_folder(root / "photos", each=15)
    [block] = (piece for piece in CODE if piece.name == "photos.yaml")
    text = block.text.replace("DIR", "photos").replace("OUT", "photos-run")
    text = text.replace("epochs: 20", "epochs: 1, folds: 2").replace("size: 96", "size: 64")
    (root / block.name).write_text(text, encoding="utf-8")


def test_without_options_the_sample_of_digits_is_learnt(place: Place) -> None:
    assert sum(place.summary["examples"].values()) == 1797
    assert place.summary["classes"] == list("0123456789")
    assert place.summary["metrics"]["accuracy"] >= 0.96
    assert place.summary["blessed"]
    assert Path(place.summary["pushed_model"], "saved_model.pb").exists()


@pytest.mark.parametrize("command", COMMANDS.values(), ids=lambda command: command.where)
def test_a_command_runs(place: Place, command: Command) -> None:
    program, _ = name_program(command.text)
    printed = place.run(place.fill(command.text))
    assert printed or program in ("less", "export")


def list_blocks() -> dict[str, str]:
    """Return the Python of each page that runs here and nowhere else, all blocks together."""
    pages: dict[str, str] = {}
    for piece in CODE:
        if piece.language == "python" and not piece.marks:
            pages[piece.page] = f"{pages.get(piece.page, '')}{piece.text}\n"
    return pages


@pytest.fixture(scope="module")
def rest_port(place: Place) -> Iterator[str]:
    """Serve the pushed model with `local_runner.py serve`; Ctrl-C must end it."""
    arguments = [sys.executable, "-u", "local_runner.py", "serve", "--port", "0"]
    with subprocess.Popen(
        arguments, cwd=place.root, env=_environment(), stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout
        try:
            page = next(line for line in server.stdout if line.startswith("Page"))
            yield page.rstrip("/\n").rpartition(":")[2]
        finally:
            server.send_signal(signal.SIGINT)
            assert server.wait(timeout=60) == 0


@pytest.mark.parametrize(("page", "text"), list_blocks().items(), ids=list_blocks())
def test_python_prints_what_its_comments_say(place: Place, page: str, text: str) -> None:
    printed = place.run('"$0" -c "$1"', sys.executable, text)
    expected = re.findall(r"^print\(.*\)  # (.+)$", text, re.MULTILINE)
    assert [line for line in printed.splitlines() if line in expected] == expected


def test_the_server_answers_the_documented_request(place: Place, rest_port: str) -> None:
    [request] = {command.text for command in ALL if "curl --silent" in command.text}
    [prediction] = json.loads(place.run(request.replace("8501", rest_port)))["predictions"]
    assert prediction["label"] == "7"

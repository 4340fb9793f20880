"""Check a command of the documentation with the program's own parser, without running it."""

import contextlib
import importlib
import io
import itertools
import re
import shlex
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kfp_runner
import local_runner
from components.trainer.config.recipes import resolve
from pipeline_def.apps.review import command as review
from pipeline_def.apps.serve import command as serve
from pipeline_def.config import command_line
from pipeline_def.config.config import Config
from pipeline_def.kubeflow import commands as kubeflow_commands
from pipeline_def.kubeflow import run_commands
from pipeline_def.local.commands import inspect, predict, rollback, run, runs
from tests.docs.markdown import ROOT

RUN = ("saved_model_cli", "less", "export", "pre-commit")
"""Programs whose commands `test_running.py` runs as they are written."""

RUN_ELSEWHERE = (
    *("lint-imports", "docs.draw_architecture", "docs.write_options", "tests.ingest.test_quirks"),
    "tensorboard",
)
"""Those that CI and other tests run."""

RUNNERS: dict[str, Any] = {"local_runner.py": local_runner, "kfp_runner.py": kfp_runner}


def name_program(command: str) -> tuple[str, list[str]]:
    """Return what runs, without `uv run` and variables before it, and its arguments."""
    words = shlex.split(command)
    while re.fullmatch(r"[A-Z_]+=.*", words[0]):
        del words[0]
    if words[:2] == ["uv", "run"]:
        del words[:2]
        while words[0].startswith("--"):
            del words[: 2 if words[0] == "--with" else 1]
        while words[0] in ("python", "-m"):
            del words[0]
    return words[0], words[1:]


class Parsed(BaseException):
    """The command line is valid."""

    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        self.config = config


@contextlib.contextmanager
def stopped_runners() -> Iterator[None]:
    """Let the runners parse their command lines, and raise `Parsed` before they act."""

    def stopping(parse: Callable[..., Any]) -> Callable[..., Any]:
        def parse_and_stop(*arguments: Any, **options: Any) -> Any:
            parsed = parse(*arguments, **options)
            raise Parsed(parsed[0] if isinstance(parsed, tuple) else None)

        return parse_and_stop

    class Parser(run_commands.Parser):
        def parse_args(self, *arguments: Any, **options: Any) -> Any:
            super().parse_args(*arguments, **options)
            raise Parsed

    with pytest.MonkeyPatch.context() as patch:
        for commands in (inspect, predict, rollback, run, runs, kubeflow_commands):
            patch.setattr(commands, "parse", stopping(command_line.parse))
        for commands in (kubeflow_commands, run_commands):
            patch.setattr(commands, "Parser", Parser)
        for app in (serve, review):
            patch.setattr(app, "parse_options", stopping(app.parse_options))
        yield


def is_parsed(program: str) -> bool:
    known = program in RUNNERS or program in ("pytest", "e2e")
    return known or program.startswith("benchmarks.")


def check_arguments(command: str) -> str:
    """Return what a program of ours, or pytest, says is wrong with its arguments; "" if nothing."""
    program, arguments = name_program(command)
    if program == "pytest":
        return _check_pytest(arguments)
    return _ask_program(program, arguments).strip() if is_parsed(program) else ""


def _ask_program(program: str, arguments: list[str]) -> str:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            if program in RUNNERS:
                RUNNERS[program].main(arguments)
            else:
                module = "e2e.__main__" if program == "e2e" else program
                importlib.import_module(module)._parser().parse_args(arguments)
        except Parsed as parsed:
            return _resolve(parsed.config) if parsed.config else ""
        except SystemExit as ended:
            return said.getvalue() if ended.code else ""
    return said.getvalue()


def _resolve(config: Config) -> str:
    try:
        resolve(config, shorter_side=100, images=3_000)
    except ValueError as error:
        return str(error)
    return ""


def _check_pytest(arguments: list[str]) -> str:
    paths = [word for word in arguments if "/" in word]
    missing = [path for path in paths if not (ROOT / path.partition("::")[0]).exists()]
    if missing:
        return f"{missing[0]} does not exist"
    marked = " ".join(after for word, after in itertools.pairwise(arguments) if word == "-m")
    wrong = set(marked.split()) - {"slow", "not"}
    return f"there is no mark {', '.join(wrong)}" if wrong else ""

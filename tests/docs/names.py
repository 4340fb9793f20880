"""Finds options, fields, commands, files, tests and links in the docs that do not exist."""

import contextlib
import dataclasses
import functools
import re
import sys
from collections.abc import Iterator

import pytest

from benchmarks import ingest, input_pipeline, measurements, runs, serving
from benchmarks.peers import input_versus
from e2e import __main__ as e2e
from pipeline_def.apps.review.options import ReviewOptions
from pipeline_def.apps.serve.options import ServerOptions
from pipeline_def.commands import COMMANDS as LOCAL_COMMANDS
from pipeline_def.config.options import list_options, list_sections
from pipeline_def.kubeflow.commands import COMMANDS as KUBEFLOW_COMMANDS
from pipeline_def.kubeflow.run_commands import Parser
from tests.docs.markdown import INLINE, ROOT, Code

# Of commands that add them as they run, of the steps on Kubeflow, and of `docker build`.
_OTHER_OPTIONS = (
    *("--config", "--help", "--help-all", "--compare", "--json", "--to"),
    *("--image", "--interface", "--build-arg", "--prune", "--yes", "--new_task"),
)
_OF_BEAM = re.compile(r"--(runner|project|region|temp_location|environment_\w+|sdk_\w+)\b")
# Options alone, or after the name of a command.
_WITH_OPTIONS = re.compile(r"--|(run|runs|compile|inspect) ")
_OPTION = re.compile(r"(?<!\S)--[a-z][\w.-]*")
_RUNNER = re.compile(r"(local|kfp)_runner\.py ([a-z]+)")
_FIELD = re.compile(r"([a-z]+)\.([a-z][a-z_.]*[a-z])\b(?![/(])")
_FILE = re.compile(r"[\w./-]*\w\.(py|md|svg|j2|go|dot|lock)")
_NOT_OURS = frozenset((".git", ".venv", "output"))
_MADE = ("MODEL_CARD.md",)
_BLOCK = re.compile(r"^\s*```.*?^\s*```", re.MULTILINE | re.DOTALL)
_TEST = re.compile(r"test_\w+")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@functools.cache
def _known_options() -> set[str]:
    programs = (ingest, input_pipeline, input_versus, measurements, runs, serving, e2e)
    parsers = [program._parser() for program in programs]

    def note(parser: Parser, _: object) -> None:
        parsers.append(parser)
        sys.exit()

    with pytest.MonkeyPatch.context() as patch:
        # Each command makes its parser and stops.
        patch.setattr(Parser, "parse_args", note)
        for name in KUBEFLOW_COMMANDS.keys() - {"compile"}:
            with contextlib.suppress(SystemExit):
                KUBEFLOW_COMMANDS[name]([])
    known = {name for parser in parsers for name in parser._option_string_actions}
    servers = (ServerOptions, ReviewOptions)
    served = [
        field.name.replace("_", "-") for owner in servers for field in dataclasses.fields(owner)
    ]
    served += [name.replace("-", "_") for name in served]
    return known.union(_OTHER_OPTIONS, (f"--{name}" for name in (*list_options(), *served)))


@functools.cache
def _files() -> frozenset[str]:
    folders = (path for path in ROOT.iterdir() if path.is_dir() and path.name not in _NOT_OURS)
    below = (path for folder in folders for path in folder.rglob("*"))
    return frozenset(str(path.relative_to(ROOT)) for path in (*ROOT.iterdir(), *below))


def find_unknown_names(code: Code) -> Iterator[str]:
    if code.language == INLINE:
        missing = (*_unknown_commands(code.text), *_unknown_options(code.text))
        for name in (*missing, *_unknown_file(code.text)):
            yield f"{code.page}:{code.line}: there is no {name}"


def _unknown_commands(text: str) -> Iterator[str]:
    if found := _RUNNER.match(text):
        commands = LOCAL_COMMANDS if found[1] == "local" else KUBEFLOW_COMMANDS
        if found[2] not in commands:
            yield f"command {found[0]}"


def _unknown_options(text: str) -> Iterator[str]:
    if _WITH_OPTIONS.match(text):
        for option in _OPTION.findall(text):
            if option not in _known_options() and not _OF_BEAM.match(option):
                yield f"option {option}"
    named = _FIELD.fullmatch(text.partition(":")[0].strip())
    is_file = text.endswith((".py", ".json", ".h5", ".pbtxt"))
    if named and named[1] in list_sections() and not (is_file or _is_field(named[0])):
        yield f"option {named[0]}"


def _unknown_file(text: str) -> Iterator[str]:
    if _FILE.fullmatch(text) and not _is_file(text):
        yield f"file {text}"
    if _TEST.fullmatch(text) and f"def {text}(" not in _tests():
        yield f"test {text}"


@functools.cache
def _tests() -> str:
    return "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/test_*.py"))


def _is_field(name: str) -> bool:
    return any(name == option or name.startswith(f"{option}.") for option in list_options())


def _is_file(name: str) -> bool:
    """Return whether a file has this path, or one that ends with it."""
    return name in _MADE or any(f"/{file}".endswith(f"/{name.lstrip('/')}") for file in _files())


def find_broken_links(text: str, page: str) -> Iterator[str]:
    folder = (ROOT / page).parent
    for link in _LINK.findall(_BLOCK.sub("", text)):
        path, _, heading = link.partition("#")
        if "://" in link:
            continue
        target = folder / path if path else ROOT / page
        if not target.exists():
            yield f"{page}: there is no file {link}"
        elif heading and heading not in _headings(target.read_text(encoding="utf-8")):
            yield f"{page}: there is no heading {link}"


def _headings(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}

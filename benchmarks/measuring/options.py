"""The options that every benchmark has, and what happens to a mistake: one sentence, status 2."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from components.contract.errors import UserError


def make_parser(module: str, description: str | None, *, repeats: int) -> argparse.ArgumentParser:
    """Return a parser with `--repeats` and `--json`.

    Args:
        module: that is run with `python -m`.
        description: the docstring of the module, shown as it is written.
        repeats: the default.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--repeats",
        type=at_least_one,
        default=repeats,
        metavar="N",
        help=f"measure everything N times, in turn; default: {repeats}",
    )
    parser.add_argument("--json", type=_file, metavar="FILE", help="write every figure there")
    return parser


def add_work(parser: argparse.ArgumentParser) -> None:
    """Add `--work`, by default in memory: that keeps the disk out of the figures."""
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()
    parser.add_argument(
        "--work",
        type=_folder,
        default=memory,
        metavar="DIR",
        help=f"folder for what is read and written, emptied at the end; default: {memory}",
    )


def add_artifacts(parser: argparse.ArgumentParser) -> None:
    """Add `--artifacts`, for what takes long to make and is the same for each run."""
    parser.add_argument(
        "--artifacts",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder for what is made to measure on; stays, and is used again by the next run",
    )


def at_least_one(text: str) -> int:
    """Read a number of things of which there must be one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 on")
    return int(text)


def _folder(text: str) -> str:
    if not os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"the folder {text} does not exist")
    return text


def _file(text: str) -> str:
    """Refuse a file that could not be written, before minutes of measuring."""
    if os.path.isdir(text) or not os.path.isdir(os.path.dirname(text) or "."):
        raise argparse.ArgumentTypeError(f"{text} is not a file in a folder that exists")
    return text


def write_json(results: Any, file: str | None) -> None:
    """Write all figures, if `--json` asks for them."""
    if file:
        Path(file).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(file)


def run(parser: argparse.ArgumentParser, work: Callable[[], object]) -> int:
    """Do the work of a command line; say in a sentence what the user can mend."""
    try:
        work()
    except UserError as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print(f"{parser.prog}: stopped", file=sys.stderr)
        return 130
    return 0

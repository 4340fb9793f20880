"""The options that every benchmark has, and one sentence with status 2 for a mistake."""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence

from components.contract.errors import ConfigurationError, UserError


def make_parser(module: str, description: str | None, *, repeats: int) -> argparse.ArgumentParser:
    """Return a parser with `--repeats`, `--json` and `--work`.

    Args:
        module: what `python -m` runs.
        description: the module's docstring, shown as it is written.
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
    # In memory, so that the disk does not show in the figures.
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()
    parser.add_argument(
        "--work",
        type=_folder,
        default=memory,
        metavar="DIR",
        help=f"folder for temporary files; default: {memory}",
    )
    return parser


def add_counts(parser: argparse.ArgumentParser, **counts: tuple[int, str]) -> None:
    """Add an option for each of `counts`, a name → default and description."""
    for name, (default, what) in counts.items():
        parser.add_argument(
            f"--{name}", type=at_least_one, default=default, help=f"{what}; default: {default}"
        )


def at_least_one(text: str) -> int:
    """Parse a positive whole number."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive whole number")
    return int(text)


def fill_batches(arguments: argparse.Namespace) -> int:
    """Return the largest number of `--images` that fills batches of `--batch`."""
    images: int = arguments.images // arguments.batch * arguments.batch
    if not images:
        raise ConfigurationError(f"--images {arguments.images} does not fill a batch")
    return images


def choose(names: Sequence[str], words: str | None) -> list[str]:
    """Return the names with one of the comma-separated `words`; a whole name is for it alone.

    Raises:
        ConfigurationError: there are none.
    """
    wanted = words.split(",") if words else [""]
    chosen = [
        name
        for name in names
        if any(word == name if word in names else word in name for word in wanted)
    ]
    if not chosen:
        raise ConfigurationError(f"none of {', '.join(names)} is named like {words}")
    return chosen


def _folder(text: str) -> str:
    if not os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"the folder {text} does not exist")
    return text


def _file(text: str) -> str:
    """Refuse a file that cannot be written before minutes of measuring."""
    if os.path.isdir(text) or not os.path.isdir(os.path.dirname(text) or "."):
        raise argparse.ArgumentTypeError(f"{text} is not a file in an existing folder")
    return text


def run(parser: argparse.ArgumentParser, work: Callable[[argparse.Namespace], object]) -> int:
    """Do what the command line asks for; return the status.

    What the user can fix is a sentence.
    """
    arguments = parser.parse_args()
    try:
        work(arguments)
    except UserError as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print(f"{parser.prog}: stopped", file=sys.stderr)
        return 130
    return 0

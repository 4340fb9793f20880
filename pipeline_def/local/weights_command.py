"""`local_runner.py weights`: ImageNet's weights, also for machines without internet."""

import os
from collections.abc import Sequence

from components.contract.error_messages import did_you_mean
from components.contract.errors import ConfigurationError
from components.contract.printable import make_printable, quote
from pipeline_def.config.model import APPLICATIONS
from pipeline_def.local.usage import WEIGHTS
from pipeline_def.model import pretrained

# Seconds without data.
_SILENCE = 60.0


def manage(arguments: Sequence[str]) -> int:
    """Run `fetch NAME`, `list` or `use FILE`.

    Raises:
        ConfigurationError: it is none of these, or there is no such network.
        ModelError: weights cannot be downloaded, or are wrong.
    """
    match list(arguments):
        case ["fetch", name] if not name.startswith("-"):
            _fetch(name)
        case ["list"]:
            _list()
        case ["use", path] if not path.startswith("-"):
            name, stored = pretrained.use(path)
            print(f"Photographs start from these weights of {name} now: {make_printable(stored)}")
        case [*words] if {"-h", "--help"} & {*words}:
            print(WEIGHTS.strip())
        case words:
            given = f"weights {' '.join(words)}".strip()
            raise ConfigurationError(
                f"Unknown command {quote(given)}: it must be `weights fetch NAME`, `weights list` "
                "or `weights use FILE`."
            )
    return 0


def _fetch(name: str) -> None:
    if name not in pretrained.RELEASES:
        hint = did_you_mean(name, pretrained.RELEASES) or " See `local_runner.py weights list`."
        raise ConfigurationError(f"{quote(name)} has no ImageNet weights.{hint}")
    path = pretrained.find(name) or pretrained.download(name, silence=_SILENCE)
    shown = make_printable(path)
    print(f"File:     {shown}\nSHA-256:  {pretrained.digest(path)}")
    name = os.path.basename(shown)
    print(f"Copy it to a machine without internet, and run: local_runner.py weights use {name}")


def _list() -> None:
    for name in pretrained.RELEASES:
        path = pretrained.find(name)
        size = f"{APPLICATIONS[name].parameters * 4 / 1e6:,.0f} MB"
        print(f"{name:<20} {size:>8}  {make_printable(path) if path else 'not here'}")

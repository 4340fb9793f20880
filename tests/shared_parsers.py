"""Parsers of the command line, each made once a process: that takes 0.1 s, parsing 0.02."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pytest

from pipeline_def.config import command_line
from pipeline_def.config.command_line import Parser

_MADE: dict[str, Parser] = {}


def make_parser(
    prog: str,
    screen: str,
    *,
    hidden: Collection[str] = (),
    own: Mapping[str, Mapping[str, Any]] | None = None,
) -> Parser:
    """Return what `command_line.make_parser` has made of the same arguments before."""
    key = repr((prog, screen, sorted(hidden), own))
    if key not in _MADE:
        _MADE[key] = command_line.make_parser(prog, screen, hidden=hidden, own=own or {})
    return _MADE[key]


@pytest.fixture(scope="session", autouse=True)
def _commands_share_parsers() -> Iterator[None]:
    from pipeline_def.kubeflow import commands as kubeflow_commands
    from pipeline_def.local import commands as local_commands

    with pytest.MonkeyPatch.context() as patch:
        for commands in (local_commands, kubeflow_commands):
            patch.setattr(commands, "make_parser", make_parser)
        yield

"""Fuzzes the YAML configuration: `uv run -m tests.fuzz.configuration --seconds 600`.

Whatever a file holds, it is refused in one sentence, or its sections become configurations that
survive the way to an executor.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Iterator
from typing import Any, get_type_hints

import atheris

from tests.fuzz.session import check_sentence, fuzz

with atheris.instrument_imports(include=["yaml", "pipeline_def.config", "components.contract"]):
    import yaml

    from components.contract.configuration import from_json, to_dict, to_json
    from components.contract.errors import ConfigurationError
    from pipeline_def.config.command_line import make_parser, parse
    from pipeline_def.config.config import Config
    from pipeline_def.config.mistakes import check_file
    from pipeline_def.config.options import list_options
    from pipeline_def.config.yaml_file import read_yaml

_SECTIONS = {
    name: kind for name, kind in get_type_hints(Config).items() if dataclasses.is_dataclass(kind)
}
# The whole parser takes a thousand times as long as the check before it.
_PARSE_EVERY = 500

_FILE = os.path.join(tempfile.mkdtemp(), "config.yaml")
_accepted = 0


def make_seeds() -> Iterator[bytes]:
    """Yield what to begin with: all defaults, each section alone, and what YAML alone can do."""
    defaults = to_dict(Config())
    texts = [yaml.safe_dump(defaults), "a: &a [x, x]\nb: [*a, *a]\n", "? [a]\n: !!int x\n"]
    texts += [f"{name}: {yaml.safe_dump(fields)}" for name, fields in defaults.items()]
    texts += ["evaluation: {thresholds: [{metric: ece, at_most: 0.1, slice: class=a}]}"]
    texts += ["ingest: {splits: {train: 0.5, eval: 0.5}, shard_mib: 1e400, threads: null}"]
    texts += ["data: 2020-13-45\n", "[" * 30, "training: {epochs: .nan}", "--- |\n  x\n...\n"]
    yield from (text.encode() for text in texts)


def check(data: bytes) -> None:
    """Read one file, as a run does."""
    global _accepted
    with open(_FILE, "wb") as file:
        file.write(data)
    try:
        if not check_file(_FILE):
            return
        found = read_yaml(_FILE)
    except ConfigurationError as error:
        check_sentence(error)
        return
    for name, value in found.items():
        if name in _SECTIONS and isinstance(value, dict):
            _build(_SECTIONS[name], value)
    _accepted += 1
    if _accepted % _PARSE_EVERY == 0:
        try:
            parse(make_parser("run.py", "Runs."), ["--config", _FILE])
        except ConfigurationError as error:
            check_sentence(error)


def _build(kind: Any, fields: dict[str, Any]) -> None:
    try:
        made = kind(**fields)
    except ConfigurationError as error:
        check_sentence(error)
    else:
        assert from_json(kind, to_json(made)) == made


if __name__ == "__main__":
    names = {part for name in list_options() for part in name.split(".")}
    fuzz(check, make_seeds(), words=[f"{name}:" for name in sorted(names)], longest=2048)

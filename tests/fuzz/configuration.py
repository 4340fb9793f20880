"""Fuzzes the YAML configuration: `uv run -m tests.fuzz.configuration --seconds 600`.

Whatever a file contains, it is rejected in one sentence, or becomes a configuration that survives
the way to an executor.
"""

import os
import tempfile
from collections.abc import Iterator

import atheris

from tests.fuzz.session import check_sentence, fuzz

with atheris.instrument_imports(include=["yaml", "pipeline_def.config", "components.contract"]):
    import yaml

    from components.contract.configuration import from_json, to_dict, to_json
    from components.contract.errors import ConfigurationError
    from pipeline_def.config.command_line import parse
    from pipeline_def.config.config import Config
    from pipeline_def.config.options import list_options

_FILE = os.path.join(tempfile.mkdtemp(), "config.yaml")


def make_seeds() -> Iterator[bytes]:
    """Yield seeds: all defaults, each section alone, and special features of YAML."""
    defaults = to_dict(Config())
    texts = [yaml.safe_dump(defaults), "a: &a [x, x]\nb: [*a, *a]\n", "? [a]\n: !!int x\n"]
    texts += [f"{name}: {yaml.safe_dump(fields)}" for name, fields in defaults.items()]
    texts += ["evaluation: {thresholds: [{metric: ece, at_most: 0.1, slice: class=a}]}"]
    texts += ["ingest: {splits: {train: 0.5, eval: 0.5}, shard_mib: 1e400, threads: null}"]
    texts += ["data: 2020-13-45\n", "[" * 30, "training: {epochs: .nan}", "--- |\n  x\n...\n"]
    yield from (text.encode() for text in texts)


def check(data: bytes) -> None:
    """Read one file, as a run does."""
    with open(_FILE, "wb") as file:
        file.write(data)
    try:
        config, _ = parse(["--config", _FILE], prog="run.py", usage="")
    except ConfigurationError as error:
        check_sentence(error)
    else:
        assert from_json(Config, to_json(config)) == config


if __name__ == "__main__":
    names = {part for name in list_options() for part in name.split(".")}
    fuzz(check, make_seeds(), words=[f"{name}:" for name in sorted(names)], longest=2048)

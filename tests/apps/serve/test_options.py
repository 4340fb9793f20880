import os
from pathlib import Path

import pytest

from pipeline_def.apps.serve.options import SCREEN, ServerOptions, parse_options
from tests.conftest import Refusal


def test_what_is_not_said_is_local_and_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where a run has left an output, that is the one to serve.
    monkeypatch.chdir(tmp_path)
    options = parse_options(["--output", "out", "--model", "17", "--timeout", "5"])
    assert options == ServerOptions(os.path.abspath("out"), model="17", timeout=5.0)
    assert options.is_local
    assert not parse_options(["--host", "0.0.0.0"]).is_local
    for flag in (["--unblessed"], ["--unblessed", "true"], ["--unblessed=true"]):
        assert parse_options([*flag, "--port", "9"]) == ServerOptions(
            os.path.abspath("output"), unblessed=True, port=9
        )
    assert parse_options(["--output", "s3://bucket/out/"]).output == "s3://bucket/out"
    for name in ServerOptions.__dataclass_fields__:
        assert f"--{name} " in SCREEN


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--prot", "1"], "Unknown option '--prot'. Did you mean '--port'?"),
        (["--port", "70000"], "port is 70000: it must be a whole number from 0 to 65,535"),
        (["--timeout", "0"], "timeout is 0: it must be a number above 0"),
        (["--name", "../x"], "name is '../x'"),
        (["--port", "x"], "port is 'x': it must be a whole number from 0 to 65,535"),
        (["--output", "ftp://host/out"], "--output is ftp://host/out, which is not supported"),
        (["--output", "/nowhere", "--port", "0"], "There is no model in /nowhere/pushed"),
        (["--model", "1", "--unblessed"], "--model and --unblessed both choose the model"),
        (["--output", "/nowhere", "--unblessed", "--port", "0"], "No run in /nowhere has trained"),
        (["--host", "192.0.2.1", "--port", "0"], "Cannot listen on 192.0.2.1"),
    ],
)
def test_a_mistake_gets_a_sentence(
    arguments: list[str],
    says: str,
    refusal: Refusal,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Beside an output folder, the command says first that it takes that one.
    monkeypatch.chdir(tmp_path)
    assert says in refusal("serve", *arguments)

import json
import logging
import random
from pathlib import Path
from typing import Any

import pytest

from pipeline_def.apps.serve.metrics import AnswerLog
from tests.apps.serve.serving import FakeModel, ask, instances, png, push, serving
from tests.conftest import Refusal
from tests.docs.markdown import read_page

ROW = {"label": b"cat", "probabilities": [0.25, 0.75], "error": b"", "known": False}


def read_lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line]


def test_each_answer_has_a_line(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    headers: dict[str, Any]
    for version in ("7", "8"):
        with serving(FakeModel(version, says_errors=True), tmp_path, log=str(file)) as port:
            body = instances(png(51), b"no image", png(0, 255))
            headers = {"X-Request-ID": f"id-{version}"}
            assert ask(port, body=body, **headers)[0] == 200
            assert ask(port, body=instances(png(1), signature_name="explain"))[0] == 200
            file.rename(tmp_path / f"moved-{version}")
    for version in ("7", "8"):
        lines = read_lines(tmp_path / f"moved-{version}")
        assert [line.pop("time") > 1.7e9 for line in lines] == [True, True]
        known = {"id": f"id-{version}", "version": version, "known": None}
        assert lines == [
            {"label": "51 0 0", "probability": 0.2, **known},
            {"label": "0 255 0", "probability": 1.0, **known},
        ]


def test_a_log_that_fails_says_so_once_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    file = tmp_path / "log"
    log = AnswerLog(str(file))
    file.unlink()
    file.symlink_to("/dev/full")
    for _ in range(3):
        log.add("a", "7", [ROW, ROW])
    file.unlink()
    file.write_text('{"time": 1', encoding="utf-8")
    log.add("b", "7", [ROW])
    [warning] = caplog.messages
    assert warning == "The log fails, serving goes on: No space left on device."
    cut, line = file.read_text(encoding="utf-8").splitlines()
    assert cut == '{"time": 1'
    assert (json.loads(line)["id"], json.loads(line)["known"]) == ("b", False)


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("{}/none/log", "Cannot write --log {}/none/log: No such file or directory."),
        ("{}", "Cannot write --log {}: Is a directory."),
        ("gs://bucket/log", "--log is gs://bucket/log, which is not supported"),
    ],
)
def test_a_log_that_cannot_be_written_is_refused_at_the_start(
    tmp_path: Path, place: str, says: str, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(tmp_path / "pushed", "1")
    monkeypatch.setattr("pipeline_def.apps.serve.command.Model", lambda path: FakeModel())
    words = ("--output", tmp_path, "--port", 0, "--log", place.format(tmp_path))
    assert says.format(tmp_path) in refusal("serve", *words)


def test_the_documented_code_finds_drift(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = (
        block.text for block in read_page("docs/how-to/serve.md") if block.language == "python"
    )
    [code] = (text for text in blocks if "answers.jsonl" in text)
    monkeypatch.chdir(tmp_path)
    for shift in (0.0, 0.2):
        Path("answers.jsonl").unlink(missing_ok=True)
        dice, log = random.Random(1), AnswerLog("answers.jsonl")
        for number in range(2000):
            score = dice.random() / 2 + shift * (number >= 1500)
            log.add("a", "8" if number else "7", [ROW | {"probabilities": [score]}])
        exec(code, {})
        printed = capsys.readouterr().out
        assert ("more or less certain" in printed) is bool(printed) is bool(shift)

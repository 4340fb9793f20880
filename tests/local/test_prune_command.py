"""`local_runner.py runs --prune N`."""

import os
from pathlib import Path
from typing import Any

import pytest

import local_runner
from components.contract.errors import ConfigurationError, DataError
from pipeline_def.local.output.prune import plan_removal, prune
from tests.local.run_samples import write_run

STEPS = ("ImageExampleGen", "Trainer", "Evaluator", "ImageReport", "Pusher")


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Runs 1 to 5; run 4 takes ingest and training of run 1 from the cache, run 5 failed."""
    for number in range(1, 6):
        changes: dict[int, dict[str, Any]] = {
            4: {"cached": STEPS[:2]},
            5: {"state": "failed", "until": "Trainer"},
        }
        record = write_run(tmp_path, number, **changes.get(number, {}))
        for step in record.steps.values():
            for made in step.outputs.values():
                folder = Path(made.uri)
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "data").write_bytes(bytes(1000 * number))
    return tmp_path


def push(output: Path, version: int) -> None:
    folder = output / "pushed" / str(version)
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"graph")


def artifacts(output: Path) -> dict[str, set[str]]:
    """Step → numbers of its artifacts on disk."""
    return {
        step: {path.name for path in (output / "artifacts" / step).glob("*/*")} for step in STEPS
    }


def test_what_recent_runs_and_the_model_in_use_need_stays(output: Path) -> None:
    push(output, 2)
    prune(str(output), "1", confirmed=True)
    # Of run 1, what run 4 took from the cache; of run 2, the lineage of its model.
    assert artifacts(output) == {
        step: {"1", "2", "5"} if step in STEPS[:2] else {"2", "4"} for step in STEPS
    }
    assert sorted(os.listdir(output / "runs")) == ["1", "2", "3", "4", "5"]
    assert os.listdir(output / "pushed") == ["2"]


def test_nothing_is_removed_without_yes_and_shared_bytes_do_not_count(
    output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = output / "artifacts/ImageExampleGen/examples"
    (examples / "2/data").unlink()
    os.link(examples / "1/data", examples / "2/data")
    os.link(output / "artifacts/Trainer/model/2/data", output / "artifacts/Trainer/model/3/more")
    before = artifacts(output)
    assert local_runner.main(["runs", "--output", str(output), "--prune", "1"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in shown[:3]] == ["Run 1", "Run 2", "Run 3"]
    assert "Evaluator, ImageReport, Pusher" in shown[0]
    # Three of run 1, three of run 2 and one that runs 2 and 3 share, five of run 3.
    assert shown[-1].startswith(f"13 artifacts, {(3 * 1000 + 4 * 2000 + 5 * 3000) / 1024:.1f} KiB")
    assert "add --yes" in shown[-1]
    assert artifacts(output) == before


def test_fewer_runs_than_to_keep_and_failed_ones(output: Path) -> None:
    assert not plan_removal(str(output), 4)
    assert {*plan_removal(str(output), 3).values()} == {1}


def test_a_model_without_a_record_stops_it(output: Path) -> None:
    push(output, 77)
    before = artifacts(output)
    with pytest.raises(DataError, match=r"No recorded run pushed '77'.*nothing is removed"):
        prune(str(output), "1", confirmed=True)
    assert artifacts(output) == before


@pytest.mark.parametrize("wanted", ["0", "-1", "many", ""])
def test_a_wrong_number(output: Path, wanted: str) -> None:
    with pytest.raises(ConfigurationError, match="give the number of runs to keep, from 1"):
        prune(str(output), wanted, confirmed=False)

import os
from pathlib import Path

import pytest

import local_runner
from components.evaluation.baseline_lookup import find_baseline
from components.storage.folder import read_bytes
from components.storage.saved_model import find_damage, read_rollback, whole_versions
from pipeline_def.runs.history import find_push
from tests.evaluation.saved_model_sample import saved_model
from tests.local.test_runs import record_run
from tests.push.test_component import push
from tests.storage.s3_server import serve_s3


def push_models(root: Path, pushed: str, *names: str) -> list[str]:
    """Push models with different weights; return their versions."""
    versions = []
    for name in names:
        if not (root / name).exists():
            saved_model(root / name / "Format-Serving", weights=name.encode())
        artifact = push(root / name, pushed, root / "archive", card=None)
        versions.append(artifact.get_string_custom_property("pushed_version"))
    return versions


def read_weights(version: str) -> bytes:
    return read_bytes(os.path.join(version, "variables/variables.index"))


@pytest.mark.slow
@pytest.mark.parametrize("place", ["disk", "bucket"])
def test_an_earlier_version_is_in_use_until_another_model_is_blessed(
    place: str, tmp_path: Path
) -> None:
    with serve_s3("bucket"):
        output = "minio://bucket/out" if place == "bucket" else str(tmp_path / "out")
        pushed = f"{output}/pushed"
        _, second = push_models(tmp_path, pushed, "first", "second")
        assert local_runner.main(["rollback", "--output", output]) == 0
        newest = next(whole_versions(pushed))
        assert int(os.path.basename(newest)) > int(second)
        assert (read_weights(newest), find_damage(newest)) == (b"first", "")
        # The same model again, as by a cached run, is not pushed; it is compared with the first.
        assert push_models(tmp_path, pushed, "second") == [""]
        assert next(whole_versions(pushed)) == newest
        assert find_baseline(pushed, str(tmp_path / "second" / "Format-Serving")) == newest
        # The first model again is not compared with the one that was withdrawn.
        assert find_baseline(pushed, str(tmp_path / "first" / "Format-Serving")) == ""
        [third] = push_models(tmp_path, pushed, "third")
        assert read_weights(f"{pushed}/{third}") == b"third"
        assert os.path.basename(next(whole_versions(pushed))) == third


def test_one_goes_back_step_by_step_and_forward_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(tmp_path / "out")
    pushed = f"{output}/pushed"
    first, second, third = push_models(tmp_path, pushed, "first", "second", "third")
    for arguments, weights, original, withdrawn in (
        ([], b"second", second, {third}),
        ([], b"first", first, {second, third}),
        ([third], b"third", third, set()),
        ([first], b"first", first, {second, third}),
    ):
        assert local_runner.main(["rollback", *arguments, "--output", output]) == 0
        newest = next(whole_versions(pushed))
        rollback = read_rollback(newest)
        assert rollback is not None
        assert (read_weights(newest), rollback.restored) == (weights, original)
        assert {*rollback.withdrawn.values()} == withdrawn
    count = len(os.listdir(pushed))
    assert local_runner.main(["rollback", first, "--output", output]) == 0
    assert "is in use, and has this model already" in capsys.readouterr().out
    assert len(os.listdir(pushed)) == count
    for arguments, message in (
        ([], f"There is no version before {first}"),
        (["17"], "There is no version 17"),
        ([""], "There is no version  in "),
        ([first, second], "Name one version"),
        (["--output", str(tmp_path)], "There is no model"),
    ):
        assert local_runner.main(["rollback", "--output", output, *arguments]) == 2
        assert message in capsys.readouterr().err


def test_history_knows_the_model_under_its_new_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    pushed = str(output / "pushed")
    first, second = push_models(tmp_path, pushed, "first", "second")
    for version in (first, second):
        recorder = record_run(output)
        recorder.change(pushed={"version": version, "destination": f"{pushed}/{version}"})
        recorder.end("done")
    assert local_runner.main(["rollback", "--output", str(output)]) == 0
    newest = os.path.basename(next(whole_versions(pushed)))
    pushing = find_push(str(output), newest)
    assert pushing
    assert pushing.number == 1
    assert local_runner.main(["runs", "--output", str(output)]) == 0
    shown = capsys.readouterr().out
    assert f"Version {newest}, in use, is version {first} again; withdrawn: {second}" in shown
    # Nothing newer is withdrawn on the way forward.
    assert local_runner.main(["rollback", second, "--output", str(output)]) == 0
    assert local_runner.main(["runs", "--output", str(output)]) == 0
    assert f"in use, is version {second} again\n" in capsys.readouterr().out

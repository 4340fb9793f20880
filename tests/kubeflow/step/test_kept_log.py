"""The log of a step outlives its pod, whether the step succeeds, fails or is killed."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from components.contract.configuration import to_json
from components.contract.errors import DataError, ServiceError
from components.contract.properties import LookupInput
from pipeline_def.kubeflow.step import kept_log
from pipeline_def.kubeflow.step_interface import SETTINGS_VARIABLE, PodSettings, StepInterface
from tests.kubeflow.conftest import command, executor_input
from tests.repository import ROOT

RUN = "f9cb95c6-c67e-4910-848e-a32d34169a24"
PASSWORD = "correct horse battery"


def find(inputs: Mapping[str, LookupInput], properties: Mapping[str, Any]) -> dict[str, Any]:
    """End as the test wants it."""
    end = properties["end"]
    print(f"Looking with {PASSWORD}", flush=True)
    if end == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if end == "stopped":
        os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(60)
    if end == "slow":
        time.sleep(60)
    if end == "failed":
        raise DataError("There are no images.")
    if end == "unavailable" or (end == "unavailable once" and not Path("seen").exists()):
        Path("seen").touch()
        raise ServiceError("The store is away.")
    return {}


def arguments(folder: Path, end: str) -> list[str]:
    """The arguments of a lookup."""
    interface = StepInterface(pipeline="images", lookup=f"{__name__}.find")
    place = {"place": {"uri": f"{folder}/images/{RUN}/Gen/1"}}
    return command("Gen", interface, executor_input(folder / "output.json", {}, place, end=end))


_IMPATIENT = """
from pipeline_def.kubeflow.step import entrypoint, kept_log
kept_log.INTERVAL = kept_log.PAUSE = 0.05
raise SystemExit(entrypoint.run_program())
"""


def run(folder: Path, end: str, *, retries: int = 0) -> tuple[int, str]:
    """Run a lookup as a program; return status and output."""
    settings = to_json(PodSettings(retries=retries))
    done = subprocess.run(
        [sys.executable, "-c", _IMPATIENT, *arguments(folder, end)],
        cwd=folder,
        env={
            **os.environ,
            "STORE_PASSWORD": PASSWORD,
            "PYTHONPATH": str(ROOT),
            SETTINGS_VARIABLE: settings,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "retries", "status", "attempts", "said"),
    [
        pytest.param("well", 0, 0, 1, "Found: {}", id="well"),
        pytest.param("failed", 2, 2, 1, "Gen: error: There are no images.", id="a mistake stays"),
        pytest.param(
            "killed", 1, 137, 2, "Gen: failed: The step was ended by SIGKILL; it may need"
        ),
        pytest.param("stopped", 2, 143, 1, "Gen: failed: The step was ended by SIGTERM."),
        pytest.param("unavailable once", 2, 0, 2, "The store is away.", id="passes"),
        pytest.param("unavailable", 1, 75, 2, "The store is away.", id="as often as allowed"),
    ],
)
def test_the_log_is_kept_however_a_step_ends_and_whether_it_starts_again(
    tmp_path: Path, end: str, retries: int, status: int, attempts: int, said: str
) -> None:
    """In its pod, where Argo's defaults keep it from retrying what fails."""
    started, log = time.monotonic(), tmp_path / f"images/{RUN}/logs/Gen.txt"
    ended, shown = run(tmp_path, end, retries=retries)
    kept = log.read_text()
    assert (ended, said in shown, kept.count("Looking with ***")) == (status, True, attempts), kept
    assert attempts > 1 or kept == shown.replace(PASSWORD, "***")
    assert time.monotonic() - started < 15
    # Attempts of other pods count, where Argo retries as well.
    if end == "unavailable":
        assert run(tmp_path, end, retries=1)[0] == 75
        assert log.read_text().count("Looking with ***") == attempts + 1


def test_a_lost_pod_leaves_the_log_as_far_as_it_came(tmp_path: Path) -> None:
    kept = tmp_path / f"images/{RUN}/logs/Gen.txt"
    program = [sys.executable, "-c", _IMPATIENT, *arguments(tmp_path, "slow")]
    with subprocess.Popen(program, stdout=subprocess.DEVNULL, start_new_session=True) as pod:
        deadline = time.monotonic() + 30
        while not (kept.exists() and "Looking" in kept.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.killpg(pod.pid, signal.SIGKILL)
    assert "Looking with" in kept.read_text()


@pytest.mark.slow
def test_a_retry_adds_and_a_store_that_fails_costs_only_the_log(tmp_path: Path) -> None:
    run(tmp_path, "killed")
    run(tmp_path, "well")
    kept = (tmp_path / f"images/{RUN}/logs/Gen.txt").read_text()
    assert kept.index("SIGKILL") < kept.index("--- next attempt ---") < kept.index("Found: {}")
    shutil.rmtree(tmp_path / "images")
    (tmp_path / "images").write_text("not a folder")
    status, shown = run(tmp_path, "well")
    assert (status, "WARNING The log is not kept: " in shown) == (0, True)


def test_secrets_are_masked_whatever_their_names_and_ends() -> None:
    log = kept_log.BoundedLog(secrets=["DB_LOGIN"])
    log.add(b"login correct horse, token battery staple, home /home/user\n")
    variables = {"DB_LOGIN": "correct horse", "TOKEN": "battery staple\n", "HOME": "/home/user"}
    assert log.content(variables) == b"login ***, token ***, home /home/user\n"


def test_the_end_of_a_long_log_is_kept_in_whole_lines() -> None:
    log, secret = kept_log.BoundedLog(), "0123456789abcdef"
    for number in range(40_000):
        log.add(b"%06d %s a line of a log of a step that is rather long\n" % (number, b"x" * 90))
        log.add(f"{secret}\n".encode())
    content = log.content({"STORE_KEY": secret, "HOME": "/root"})
    assert kept_log.MOST / 2 < len(content) < 2 * kept_log.MOST
    first, *lines = content.decode().splitlines()
    assert "left out" in first
    assert lines[-2].startswith("039999 ")
    assert {line for line in lines if " " not in line} == {"***"}

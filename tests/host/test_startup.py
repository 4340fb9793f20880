"""What is left out of imports, and how a process ends."""

import os
import subprocess
import sys

import pytest

from components.contract.errors import ServiceError
from components.host.startup import exit_status

_IMPORTS = """
import os, sys
os.environ.pop("ARROW_DEFAULT_MEMORY_POOL", None)
from components.host.startup import quick_imports
with quick_imports():
    import pipeline_def.pipeline, pipeline_def.local.runner, pipeline_def.local.results
unused = {"keras", "keras_tuner", "kubernetes", "google.cloud.bigquery", "nltk"}
unused |= {"matplotlib", "sklearn", "scipy.stats.distributions", "apache_beam.io.gcp.gcsio"}
import tensorflow_model_analysis
tensorflow_model_analysis.default_eval_shared_model
print(*sorted(unused & set(sys.modules)))
import google.cloud.bigquery, kubernetes
print(google.cloud.bigquery.__name__, kubernetes.__name__)
import pyarrow
print(pyarrow.default_memory_pool().backend_name)
"""

_END = """
import atexit, sys, threading, time
from components.host.startup import end_process, seconds_since_start
time.sleep(0.2)
assert 0.2 < seconds_since_start() < 60
atexit.register(print, "cleaned up")
threading.Thread(target=time.sleep, args=(600,)).start()
print("written", end="")
end_process(3)
"""

_SAY = """
from components.contract.errors import ServiceError
from components.host.startup import exit_status
def command():
    print("█ caf\\xe9")
    raise ServiceError("gs://…")
exit_status(command, program="runner.py", stopped="")
"""


@pytest.mark.slow
def test_what_no_step_uses_is_not_imported_but_can_be_afterwards() -> None:
    lines = _run(_IMPORTS).stdout.splitlines()
    assert lines[-3:] == ["", "google.cloud.bigquery kubernetes", "mimalloc"]


def test_the_end_cleans_up_writes_what_was_printed_and_waits_for_no_thread() -> None:
    ended = _run(_END)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "writtencleaned up\n", "")


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (ServiceError("No answer."), 2, "runner.py: error: No answer.\n"),
        (KeyboardInterrupt(), 130, "runner.py: stopped.\n"),
    ],
)
def test_the_status_of_a_mistake_and_of_ctrl_c(
    capsys: pytest.CaptureFixture[str], error: BaseException, status: int, said: str
) -> None:
    def command() -> int:
        raise error

    assert exit_status(command, program="runner.py", stopped="stopped.") == status
    assert capsys.readouterr().err == said


def test_terminals_that_take_ascii_only() -> None:
    ended = _run(_SAY, PYTHONIOENCODING="ascii")
    assert ended.stdout == "\\u2588 caf\\xe9\n"
    assert ended.stderr == "runner.py: error: gs://\\u2026\n"


def _run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    env = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from components.contract.errors import StorageError
from components.host.lock import locked

_HOLDER = """
import sys, time
from components.host.lock import locked
with locked(sys.argv[1], "it", say=print):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    command = [sys.executable, "-c", _HOLDER, path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        said: list[str] = []
        threading.Timer(0.5, holder.kill).start()
        with locked(path, "the folder", say=said.append):
            assert holder.wait() != 0
    [sentence] = said
    assert sentence.startswith(f"Process {holder.pid} on ")
    assert sentence.endswith(" is writing to the folder: waiting until it has ended.")


def test_no_locks_in_a_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    said: list[str] = []
    with locked(str(tmp_path / "lock"), "the folder", say=said.append):
        [sentence] = said
    assert sentence.startswith(
        "The file system of the folder does not support locks (No locks available): "
    )


def test_a_lock_file_that_cannot_be_created(tmp_path: Path) -> None:
    with (
        pytest.raises(StorageError, match=r"Cannot lock the folder: .*: No such file"),
        locked(str(tmp_path / "none" / "lock"), "the folder", say=print),
    ):
        pass

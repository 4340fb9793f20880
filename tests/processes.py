"""The processes that another one has started, whoever started them on its behalf."""

from __future__ import annotations

import time
from pathlib import Path

_PATIENCE = 20.0


def find_children(pid: int) -> list[int]:
    """Return the processes that `pid` has started and that have not been waited for."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        return [int(child) for child in path.read_text().split()]
    except OSError:  # It has ended meanwhile.
        return []


def find_plan_servers(pid: int) -> list[int]:
    """Return the servers of ingest's processes that any thread of `pid` has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(") ")[2].split()[1])
            if parent == pid and b"plan_processes" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:  # It has ended meanwhile.
            continue
    return found


def wait_for_end(pid: int) -> None:
    """Return when a process has ended, which need not be a child of this one.

    Raises:
        TimeoutError: it goes on.
    """
    status, end = Path(f"/proc/{pid}/stat"), time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        try:
            if ") Z " in status.read_text():  # Nobody has asked yet how it has ended.
                return
        except OSError:
            return
        time.sleep(0.001)
    raise TimeoutError(pid)

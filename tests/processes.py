"""The processes that another one has started, whoever started them on its behalf."""

from pathlib import Path


def find_plan_processes(pid: int) -> list[int]:
    """Return ingest's processes that any thread of `pid` has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(") ")[2].split()[1])
            if parent == pid and b"plan_processes" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:  # It has ended meanwhile.
            continue
    return found

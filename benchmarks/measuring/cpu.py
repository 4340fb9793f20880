"""CPU time of a process and its descendants, which is meaningful on a busy machine, too.

Imports nothing of this project, as it also runs in environments of others.
"""

import os
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """Return user and system time of this process and its living descendants.

    Where there is no /proc, of this process alone.
    """
    if not Path("/proc/self/stat").exists():
        times = os.times()
        return times.user + times.system
    children: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text(encoding="latin-1").rpartition(")")[2].split()
        except OSError:  # it has ended since it was listed
            continue
        pid = int(entry.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        used[pid] = (int(fields[11]) + int(fields[12])) / _TICK
    return _sum(os.getpid(), children, used)


def _sum(pid: int, children: dict[int, list[int]], used: dict[int, float]) -> float:
    return used.get(pid, 0.0) + sum(_sum(child, children, used) for child in children.get(pid, []))

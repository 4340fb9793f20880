"""How much memory a process may still take, in a container too."""

from __future__ import annotations

from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Return bytes: what the system could give without swapping, within the container's limit.

    Source: `MemAvailable` in proc(5); `memory.max` and `memory.current` in the kernel's
    admin-guide/cgroup-v2. Files cached for the container count as current, and can be dropped.
    """
    fields = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) * 1024
    limit = _read(_CGROUP / "memory.max")
    if limit is None:
        return available
    statistics = (_CGROUP / "memory.stat").read_text().splitlines()
    droppable = dict(line.split() for line in statistics).get("inactive_file", "0")
    used = (_read(_CGROUP / "memory.current") or 0) - int(droppable)
    return max(0, min(available, limit - used))


def _read(path: Path) -> int | None:
    """Return the number in a file of a control group; None if there is no file or no limit."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def gib(size: float) -> str:
    """Say `size`, in bytes, in GiB."""
    return f"{size / 2**30:,.1f} GiB"

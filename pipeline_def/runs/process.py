"""Tells whether the process of a run still lives, after a kill that let it say nothing."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A process; its number alone may since belong to another."""

    host: str
    pid: int
    started: str
    """Tells it from later ones of the same number; "" on a system without /proc."""

    def has_ended(self) -> bool:
        """Say whether it is known to have ended; of another machine's nothing is known."""
        known = self.host == socket.gethostname() and self.started
        return bool(known) and _find_start(self.pid) != self.started


def this_process() -> Process:
    """Describe the process that calls."""
    return Process(socket.gethostname(), os.getpid(), _find_start(os.getpid()))


def _find_start(pid: int) -> str:
    """Return the boot and the clock ticks after it when a process started; "" if there is none.

    Source: `starttime`, the 22nd field of /proc/pid/stat in proc(5); the second is a name in
    parentheses.
    """
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    state, ticks = fields[0], fields[19]
    return "" if state in "ZX" else f"{boot} {ticks}"

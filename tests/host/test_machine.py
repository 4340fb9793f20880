import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from components.host import machine

MIB = 2**20
UNLIMITED = "9223372036854771712"

# Controllers and path of a process, as /proc/self/cgroup gives them, and files of control groups:
# their path below /sys/fs/cgroup → their content.
MEMORY: dict[str, tuple[str, dict[str, str], int]] = {
    "no container": ("0::/user.slice", {}, 8000),
    "version 2, the container sees its group as the root": (
        "0::/",
        {
            "memory.max": f"{5000 * MIB}",
            "memory.current": f"{3000 * MIB}",
            "memory.stat": f"anon 1\ninactive_file {1000 * MIB}",
        },
        3000,
    ),
    "version 2, a limit of the pod around a container without one": (
        "0::/pod/container",
        {
            "pod/container/memory.max": "max",
            "pod/memory.max": f"{2000 * MIB}",
            "pod/memory.current": f"{500 * MIB}",
        },
        1500,
    ),
    "version 1, the path is the host's": (
        "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc",
        {
            "memory/docker/memory.limit_in_bytes": UNLIMITED,
            "memory/memory.limit_in_bytes": f"{4000 * MIB}",
            "memory/memory.usage_in_bytes": f"{2500 * MIB}",
            "memory/memory.stat": f"cache 1\ntotal_inactive_file {500 * MIB}",
        },
        2000,
    ),
}

CPUS: dict[str, tuple[str, dict[str, str], int]] = {
    "no container": ("0::/user.slice", {}, 8),
    "version 2, no quota": ("0::/", {"cpu.max": "max 100000"}, 8),
    "version 2, the pod's quota is the tighter one": (
        "0::/pod/container",
        {"pod/container/cpu.max": "600000 100000", "pod/cpu.max": "200000 100000"},
        2,
    ),
    "version 1, mounted by the controller's name, nested": (
        "3:cpuacct,cpu:/pod/container",
        {
            "cpu/pod/container/cpu.cfs_quota_us": "-1",
            "cpu/pod/container/cpu.cfs_period_us": "100000",
            "cpu/pod/cpu.cfs_quota_us": "150000",
            "cpu/pod/cpu.cfs_period_us": "50000",
        },
        3,
    ),
}


@pytest.mark.parametrize("cases", [MEMORY, CPUS], ids=["memory", "CPUs"])
def test_the_tightest_control_group_counts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cases: dict[str, tuple[str, dict[str, str], int]],
) -> None:
    """Of a machine with 8 CPUs and 8,000 MiB."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    for number, (case, (processes, files, expected)) in enumerate(cases.items()):
        proc, groups = tmp_path / f"proc{number}", tmp_path / f"cgroup{number}"
        memory = f"MemTotal: 9 kB\nMemAvailable:    {8000 * 1024} kB\n"
        for path, content in {
            proc / "meminfo": memory,
            proc / "self/cgroup": processes,
            **{groups / name: f"{content}\n" for name, content in files.items()},
        }.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        monkeypatch.setattr(machine, "_PROC", proc)
        monkeypatch.setattr(machine, "_CGROUPS", groups)
        limit = machine.available_cpus() if cases is CPUS else machine.available_memory() // MIB
        assert limit == expected, case


def test_free_memory_between_blocks_in_use_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[bool] = []
    pool = SimpleNamespace(release_unused=lambda: released.append(True))
    arrow = SimpleNamespace(default_memory_pool=lambda: pool)
    monkeypatch.setitem(sys.modules, "pyarrow", arrow)
    blocks: list[Any] = [bytes(1_000) for _ in range(50_000)]
    # It refers to itself.
    cycle = [blocks]
    cycle.append(cycle)
    last = blocks[-1]
    del blocks, cycle
    before = psutil.Process().memory_info().rss
    machine.trim_memory()
    assert psutil.Process().memory_info().rss < before - 30 * MIB
    assert last
    assert released, "Arrow keeps memory of its own"

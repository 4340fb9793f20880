"""Memory of the process that runs the tests."""

from pathlib import Path


def process_memory() -> int:
    """Return the resident set size in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(dict(line.split(":", 1) for line in lines)["VmRSS"].split()[0]) * 1024

"""Memory, CPUs, disks and packages that this process may use, within the limits of its container.

Source: proc(5); "Memory" and "CPU" in the kernel's admin-guide/cgroup-v2, and cgroup-v1/memory and
scheduler/sched-bwc for version 1. A group cannot exceed the limits of its parents.
"""

import contextlib
import ctypes
import errno
import gc
import importlib.metadata
import importlib.util
import math
import mmap
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from components.contract.errors import ConfigurationError, StorageError
from components.contract.model_files import ONNX
from components.contract.printable import read_number

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")

ONNX_PACKAGES = ("tf2onnx", "onnx", "onnxruntime")
"""What the extra `onnx` installs."""
_LIBRARIES = (
    "tfx",
    "tensorflow",
    "tensorflow-data-validation",
    "tensorflow-transform",
    "tensorflow-model-analysis",
    "apache-beam",
    "tf-keras",
    "numpy",
)

_Limit = TypeVar("_Limit", int, float)


def available_memory() -> int:
    """Return the bytes available without swapping, within the container's limit."""
    fields = dict(line.split(":", 1) for line in (_PROC / "meminfo").read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) * 1024
    return max(0, min([available, *_limits("memory", _unused_memory)]))


def read_versions() -> dict[str, str]:
    """Return the versions of the libraries that decide what a run computes."""
    return {name: importlib.metadata.version(name) for name in _LIBRARIES}


@contextlib.contextmanager
def pause_collection() -> Iterator[None]:
    """Pause Python's search for cycles, which takes half the time of making a million tuples."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def trim_memory() -> None:
    """Return free memory to the system, which glibc and Arrow keep between blocks in use.

    Objects that refer to each other, such as graphs and the images that they read, are freed first.
    """
    gc.collect()
    if arrow := sys.modules.get("pyarrow"):
        arrow.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):  # Another C library.
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def release_pages(mapped: Any) -> None:
    """Let the system drop the read pages of a mapped NumPy array, which count as memory."""
    if isinstance(mapped.base, mmap.mmap):
        mapped.base.madvise(mmap.MADV_DONTNEED)


def choose_allocator() -> None:
    """Have Arrow, once it is loaded, keep memory between pages.

    Older versions give it back after each, which takes two thirds of the time of reading Parquet.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "mimalloc")


def fits_in_memory(size: int, available: int) -> bool:
    """Return whether `size` bytes leave half of the `available` memory for everything else."""
    return size <= available / 2


def available_cpus() -> int:
    """Return the number of threads that can run at the same time, at least 1.

    Limited by the CPUs to which this process is bound and by the container's quota, rounded up.
    """
    return max(1, min([bound_cpus(), *map(math.ceil, _limits("cpu", _cpu_quota))]))


def bound_cpus() -> int:
    """Return the number of CPUs that this process may run on, regardless of its quota."""
    return len(os.sched_getaffinity(0))


def gib(size: float) -> str:
    """Format bytes as GiB."""
    return f"{size / 2**30:,.1f} GiB"


def _limits(controller: str, read: Callable[[Path], _Limit | None]) -> list[_Limit]:
    """Return the limits that `read` finds in the control groups of this process."""
    return [limit for group in _groups(controller) if (limit := read(group)) is not None]


def _groups(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control groups, from the innermost to the root.

    A container may see its own group as the root but read the host's path, so some of the folders
    may not exist.
    """
    try:
        lines = (_PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            roots = [_CGROUPS, _CGROUPS / "unified"]
        elif controller in controllers.split(","):
            roots = [_CGROUPS / controllers, _CGROUPS / controller]
        else:
            continue
        relative = Path(path.lstrip("/"))
        yield from (root / group for root in roots for group in (relative, *relative.parents))


def _unused_memory(group: Path) -> int | None:
    """Return a group's limit minus its usage, not counting cached files, which can be dropped."""
    for limit, usage, cached in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        if (most := _number(group / limit)) is not None:
            statistics = dict(line.split() for line in _lines(group / "memory.stat"))
            return most - (_number(group / usage) or 0) + int(statistics.get(cached, "0"))
    return None


def _cpu_quota(group: Path) -> float | None:
    """Return the CPUs of a group: its time quota per period."""
    quota, period = _number(group / "cpu.cfs_quota_us"), _number(group / "cpu.cfs_period_us")
    for line in _lines(group / "cpu.max"):
        quota, period = (read_number(word) for word in line.split())
    # Without a quota, version 1 has -1 and version 2 "max".
    return quota / period if quota and period else None


def _number(file: Path) -> int | None:
    return read_number("".join(_lines(file)))


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []


def require_formats(kinds: Iterable[str]) -> None:
    """Raise `ConfigurationError` if a package that an export needs is not installed."""
    missing = [name for name in ONNX_PACKAGES if importlib.util.find_spec(name) is None]
    if ONNX in kinds and missing:
        raise ConfigurationError(
            f"export.formats has onnx, which needs the package {' and '.join(missing)}: run "
            "`uv sync --extra onnx`, or install `tfx-image-pipeline[onnx]`."
        )


_FULL = (errno.ENOSPC, errno.EDQUOT)
# TensorFlow, Beam and SQLite raise errors with only a text.
_WORDS = (*map(os.strerror, _FULL), "database or disk is full")


@contextlib.contextmanager
def explaining_full_disk(output: str) -> Iterator[None]:
    """Turn an error of a full disk, that of `output` or of temporary files, into `StorageError`."""
    try:
        yield
    except Exception as error:
        full = next(filter(_is_full, _chain(error)), None)
        if full is None:
            raise
        folder = _find_folder(full, output)
        free = shutil.disk_usage(folder).free / 2**20
        raise StorageError(
            f"No space left in {folder}; {free:,.1f} MiB are free there now. Make space and run "
            "again: finished steps are kept."
        ) from error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _is_full(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    return any(word in str(error) for word in _WORDS)


def _find_folder(error: BaseException, output: str) -> str:
    """Return the folder of the file that could not be written, or else the fuller disk's."""
    named = getattr(error, "filename", None)
    if isinstance(named, str) and os.path.isdir(folder := os.path.dirname(named)):
        return folder
    return min((output, tempfile.gettempdir()), key=lambda path: shutil.disk_usage(path).free)

"""Makes a container's root directory in a new mount namespace and runs its command there.

It is process 1 of that namespace, run by pod.py; system calls take it milliseconds, for
which dozens of mount commands would need a second.
"""

import contextlib
import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

_RDONLY, _REMOUNT, _BIND, _REC = 1, 32, 4096, 16384
_LOCKED = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME
"""Flags that a user may not remove from a mount, as mount() takes them."""

_libc = ctypes.CDLL(None, use_errno=True)


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    if _libc.mount(source.encode(), target.encode(), kind and kind.encode(), flags, None):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


def _bind(source: str, target: str, *, read_only: bool) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        Path(target).touch()
    _mount(source, target, None, _BIND | _REC)
    if read_only:
        flags = os.statvfs(target).f_flag & _LOCKED
        with contextlib.suppress(OSError):
            _mount(source, target, None, _REMOUNT | _BIND | _RDONLY | flags)


def _fill(root: str, folder: str, plan: dict[str, Any]) -> None:
    """Mount the entries of the host's `folder` one by one, so that others can be added."""
    os.makedirs(root + folder, exist_ok=True)
    for entry in os.scandir(folder) if os.path.isdir(folder) else ():
        if entry.path in plan["opened"] or entry.path in plan["mounts"]:
            continue
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), root + entry.path)
        elif entry.path != "/proc":
            _bind(entry.path, root + entry.path, read_only=entry.path not in ("/dev", "/sys"))


def _show_processes(root: str) -> None:
    os.mkdir(f"{root}/proc")
    try:
        _mount("proc", f"{root}/proc", "proc", 0)
    except OSError:
        _bind("/proc", f"{root}/proc", read_only=False)


def main(plan: dict[str, Any]) -> int:
    """Make the root directory, start the container's command in it, return its exit status."""
    root = plan["root"]
    _mount("tmpfs", root, "tmpfs", 0)
    for folder in plan["opened"]:
        _fill(root, folder, plan)
    _show_processes(root)
    for mount, source in plan["mounts"].items():
        _bind(source, root + mount, read_only=False)
    # Those that lie under /tmp are hidden by now.
    for kept in plan["kept"]:
        _bind(kept, root + kept, read_only=True)
    Path(plan["ready"]).touch()
    child = os.fork()
    if not child:
        os.chroot(root)
        os.chdir(plan["folder"])
        _become(plan)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status if status >= 0 else 128 - status


def _become(plan: dict[str, Any]) -> None:
    try:
        os.environ["PATH"] = plan["env"]["PATH"]
        os.execvpe(plan["command"][0], plan["command"], plan["env"])
    except OSError as error:
        print(f"{plan['command'][0]}: {error.strerror}", file=sys.stderr)
        os._exit(127)


if __name__ == "__main__":
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text())))

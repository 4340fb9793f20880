"""A root directory of its own for each container: a copy of this machine's that is lost again."""

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[3]
_FRESH = ("/dev/shm", "/gcs", "/minio", "/s3", "/tmp")  # Empty when a container starts.

# Takes an empty folder, a file to make, pairs of a folder here and its path there, --, a command.
_START = """
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
ready=$2
shift 2
while [ "$1" != -- ]; do
  mkdir -p ".$2"
  mount --rbind "$1" ".$2"
  shift 2
done
mount -t proc proc proc
touch "$ready"
shift
exec chroot . "$@"
"""


def _unshare(*arguments: str) -> list[str]:
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    # The namespace of processes ends what a container leaves running.
    command = ["unshare", *user, "--mount", "--pid", "--fork", "--kill-child"]
    return [*command, "sh", "-euc", _START, "sh", *arguments]


@functools.cache
def has_namespaces() -> bool:
    """Return whether this machine lets us make such a root directory."""
    with contextlib.suppress(OSError):
        probe = _unshare("/tmp", "/dev/null", "--", "true")
        return subprocess.run(probe, capture_output=True).returncode == 0
    return False


@dataclass(frozen=True)
class Pod:
    """What one container sees and writes; `folder` is new."""

    folder: Path
    volumes: Mapping[str, Path | None]
    """Mount path → folder of the host; None for an empty one."""

    @property
    def mounts(self) -> dict[str, Path]:
        """Everything that a container may write to: path → folder of the host, outer ones first."""
        mounts = {**dict.fromkeys(_FRESH), **self.volumes}
        return {path: mounts[path] or self.folder / path[1:] for path in sorted(mounts)}

    def run(self, command: list[str], env: Mapping[str, str], log: Path, timeout: float) -> int:
        """Run `command` in the repository's folder; return its exit status."""
        root, ready = self.folder / "root", self.folder / "ready"
        for folder in (root, *self.mounts.values()):
            folder.mkdir(parents=True, exist_ok=True)
        # The last ones may lie under /tmp, which is hidden by then.
        kept = (str(_REPOSITORY), sys.prefix, sys.base_prefix)
        pairs = [(path, path) for path in ("/dev", "/sys")]
        pairs += [(str(folder), path) for path, folder in self.mounts.items()]
        pairs += [(path, path) for path in dict.fromkeys(kept)]
        places = [word for pair in pairs for word in pair]
        there = ["--", "env", f"--chdir={_REPOSITORY}", *command]
        with log.open("ab") as stream:
            status = subprocess.run(
                _unshare(str(root), str(ready), *places, *there),
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                timeout=timeout,
            ).returncode
        if not ready.exists():
            raise RuntimeError(f"the root directory could not be made: {log.read_text()}")
        return status

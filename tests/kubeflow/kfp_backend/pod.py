"""A root directory of its own for each container, by Linux mount namespaces."""

import contextlib
import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.kubeflow.kfp_backend import isolate

_REPOSITORY = Path(__file__).resolve().parents[3]
_FRESH = ("/dev/shm", "/gcs", "/minio", "/s3", "/tmp")  # Empty when a container starts.


@functools.cache
def has_namespaces() -> bool:
    """Return whether this machine lets us create mount namespaces."""
    probe = [*_unshare(), "mount", "-t", "tmpfs", "tmpfs", "/tmp"]
    with contextlib.suppress(OSError):
        return subprocess.run(probe, capture_output=True).returncode == 0
    return False


def _unshare() -> list[str]:
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    # The namespace of processes ends what a container leaves running.
    return ["unshare", *user, "--mount", "--pid", "--fork", "--kill-child"]


@dataclass(frozen=True)
class Pod:
    """What one container sees and writes; `folder` is new."""

    folder: Path
    volumes: Mapping[str, Path | None]
    """Mount path → folder of the host; None for an empty one."""

    def __post_init__(self) -> None:
        for folder in self.mounts.values():
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def mounts(self) -> dict[str, Path]:
        """Everything that a container may write to: path → folder of the host, outer ones first."""
        mounts = {**dict.fromkeys(_FRESH), **self.volumes}
        return {path: mounts[path] or self.folder / path[1:] for path in sorted(mounts)}

    def run(self, command: list[str], env: Mapping[str, str], log: Path, timeout: float) -> int:
        """Run `command` in the repository's folder; return its exit status."""
        root, file = self.folder / "root", self.folder / "plan.json"
        root.mkdir()
        kept = dict.fromkeys((str(_REPOSITORY), sys.prefix, sys.base_prefix))
        plan = {
            "root": str(root),
            "opened": sorted(self._opened()),
            "mounts": {mount: str(folder) for mount, folder in self.mounts.items()},
            "kept": list(kept),
            "ready": str(self.folder / "ready"),
            "folder": str(_REPOSITORY),
            "command": command,
            "env": dict(env),
        }
        file.write_text(json.dumps(plan))
        with log.open("ab") as stream:
            status = subprocess.run(
                [*_unshare(), sys.executable, "-I", "-S", isolate.__file__, str(file)],
                cwd=_REPOSITORY,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                timeout=timeout,
            ).returncode
        if not (self.folder / "ready").exists():
            raise RuntimeError(f"the root directory could not be made: {log.read_text()}")
        return status

    def _opened(self) -> set[str]:
        """Find the folders whose entries are mounted one by one, to add mount points to them."""
        opened = {"/"}
        for mount in self.mounts:
            inner = any(mount.startswith(other + "/") for other in self.mounts)
            if not inner and not Path(mount).is_dir():
                opened |= {str(parent) for parent in Path(mount).parents}
        return opened

"""A root directory of its own for each step, by Linux mount namespaces."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from tests.kubeflow.launcher import isolate
from tests.kubeflow.launcher.warm import WarmPython

REPOSITORY = Path(__file__).resolve().parents[3]
FRESH = ("/dev/shm", "/gcs", "/minio", "/s3", "/tmp")
"""Folders that are empty when a step starts."""


@functools.cache
def isolation() -> Literal["namespaces", "links", "none"]:
    """Say what this machine allows: namespaces, or only links in / to fresh folders."""
    probe = [*_unshare(), "mount", "-t", "tmpfs", "tmpfs", "/tmp"]
    with contextlib.suppress(OSError):
        if subprocess.run(probe, capture_output=True).returncode == 0:
            return "namespaces"
    return "links" if os.geteuid() == 0 else "none"


def _unshare() -> list[str]:
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    # The namespace of processes ends what a step leaves running.
    return ["unshare", *user, "--mount", "--pid", "--fork", "--kill-child"]


@dataclass(frozen=True)
class Pod:
    """What one step sees and writes; `folder` is made new for it."""

    folder: Path
    volumes: Mapping[str, Path | None]
    """Mount path → folder of the host; None for an empty one."""
    python: WarmPython

    def __post_init__(self) -> None:
        for folder in self.mounts.values():
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def mounts(self) -> dict[str, Path]:
        """Everything that a step may write to: path → folder of the host, outer ones first."""
        mounts = {**dict.fromkeys(FRESH), **self.volumes}
        return {path: mounts[path] or self.folder / path[1:] for path in sorted(mounts)}

    def local(self, path: str) -> Path:
        """Say where on the host the step's `path` lies."""
        for mount, folder in reversed(self.mounts.items()):
            if path == mount or path.startswith(mount + "/"):
                return folder / path[len(mount) + 1 :]
        raise NotImplementedError(f"{path} is outside of what a step may write to")

    def run(self, command: list[str], env: Mapping[str, str], log: Path, timeout: float) -> int:
        """Run `command` in the repository's folder; return its exit status."""
        if isolation() != "namespaces":
            with self._links():
                return self._run(command, env, log, timeout)
        root, file = self.folder / "root", self.folder / "plan.json"
        root.mkdir()
        kept = dict.fromkeys((str(REPOSITORY), sys.prefix, sys.base_prefix))
        plan = {
            "root": str(root),
            "opened": sorted(self._opened()),
            "mounts": {mount: str(folder) for mount, folder in self.mounts.items()},
            "kept": list(kept),
            "ready": str(self.folder / "ready"),
            "folder": str(REPOSITORY),
            "command": command,
            "env": dict(env),
            "log": str(log),
        }
        if WarmPython.can_run(command):
            status = self.python.run(plan, file, timeout)
        else:
            file.write_text(json.dumps(plan))
            isolated = [*_unshare(), sys.executable, "-I", "-S", isolate.__file__, str(file)]
            status = self._run(isolated, env, log, timeout)
        if not (self.folder / "ready").exists():
            raise RuntimeError(f"the root directory could not be made: {log.read_text()}")
        return status

    def _run(self, command: list[str], env: Mapping[str, str], log: Path, timeout: float) -> int:
        with log.open("ab") as stream:
            return subprocess.run(
                command,
                cwd=REPOSITORY,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                timeout=timeout,
            ).returncode

    def _opened(self) -> set[str]:
        """Find the folders whose entries are shown one by one, to add mount points to them."""
        opened = {"/"}
        for mount in self.mounts:
            inner = any(mount.startswith(other + "/") for other in self.mounts)
            if not inner and not Path(mount).is_dir():
                opened |= {str(parent) for parent in Path(mount).parents}
        return opened

    @contextlib.contextmanager
    def _links(self) -> Iterator[None]:
        if isolation() == "none":
            pytest.skip("steps need Linux namespaces, or root for links in /")
        linked = {*FRESH, *self.volumes, "/tmp/kfp", "/tmp/kfp_outputs"} - {"/dev/shm", "/tmp"}
        made: list[Path] = []
        try:
            for path in sorted(linked):
                if os.path.lexists(path):
                    pytest.skip(f"without Linux namespaces, {path} must not exist")
                folder = self.local(path)
                folder.mkdir(parents=True, exist_ok=True)
                missing = [parent for parent in Path(path).parents if not parent.exists()]
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                Path(path).symlink_to(folder)
                made += [*reversed(missing), Path(path)]
            yield
        finally:
            for item in reversed(made):
                item.unlink() if item.is_symlink() else item.rmdir()

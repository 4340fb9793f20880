"""The object store as KFP's launcher uses it: folders of the host, in which files are objects."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.kubeflow.launcher.values import StepError

_MOUNTS = {"gs": "gcs", "minio": "minio", "s3": "s3"}


def local_path(uri: str) -> str | None:
    """Say where a step finds `uri`; None for a scheme that the launcher does not know."""
    scheme, _, rest = uri.partition("://")
    return f"/{_MOUNTS[scheme]}/{rest}" if scheme in _MOUNTS else None


def object_path(store: Path, uri: str) -> Path:
    """Say where the harness keeps the objects of `uri`."""
    scheme, _, rest = uri.partition("://")
    return store / scheme / rest


def upload_uri(uri: str, root: str) -> str:
    """Check that `uri` lies under the run's root (objectstore/config.go, KeyFromURI)."""
    if not uri.startswith(root):
        raise StepError(f'URI "{uri}" does not have expected bucket prefix "{root}"')
    key = uri.removeprefix(root).lstrip("/")
    if not key:
        raise StepError(f'URI "{uri}" has empty key given prefixed bucket "{root}"')
    # The prefix is compared without a slash at its end: <root>x/y is written to <root>/x/y.
    return f"{root}/{key}"


def download(source: Path, target: Path, *, siblings: bool) -> None:
    """Copy the objects whose key is `source` or lies below; of none, not even a folder is made."""
    # 2.5 lists by prefix alone: with "model" it also brings "model_run" (object_store.go).
    pattern = f"{source.name}*" if siblings else source.name
    for path in source.parent.glob(pattern) if source.parent.is_dir() else ():
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        for file in files:
            local = target.parent / file.relative_to(source.parent)
            local.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, local)


def upload(source: Path, target: Path) -> bool:
    """Copy a file or the files of a folder to the store; False where there is neither."""
    _check_link(source)
    if not source.exists():
        return False
    if not source.is_dir():
        _upload_file(source, target)
        return True
    for entry in os.scandir(source):
        if entry.is_dir(follow_symlinks=False):
            upload(Path(entry.path), target / entry.name)
        else:
            _upload_file(Path(entry.path), target / entry.name)
    return True


def _upload_file(source: Path, target: Path) -> None:
    _check_link(source)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    except OSError as error:
        # A link to a folder is a file to Go's ReadDir, and cannot be read.
        raise StepError(f'uploadFile(): unable to complete copying "{source}": {error}') from error


def _check_link(source: Path) -> None:
    # It would be followed outside of the step's root directory.
    if source.is_symlink() and os.readlink(source).startswith("/"):
        raise NotImplementedError(f"{source.name} is a link to an absolute path")

"""Folders of files, written and read as mappings."""

from collections.abc import Mapping
from pathlib import Path


def write_files(folder: Path, files: Mapping[str, bytes | str]) -> Path:
    """Write a file for each path below `folder`; return the folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below `folder`, by relative path."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}

"""A copy of this repository, for tests that change its files or run it as a user does."""

import shutil
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]

_LEFT_OUT = shutil.ignore_patterns(".venv", ".git", "__pycache__", ".*_cache")


def copy_repository(target: Path) -> Path:
    """Copy it to a new folder, without its environment, its history and what runs have made."""

    def left_out(folder: str, names: Sequence[str]) -> set[str]:
        ignored = {"output"} if Path(folder) == ROOT else set()
        return _LEFT_OUT(folder, list(names)) | ignored

    shutil.copytree(ROOT, target, ignore=left_out)
    return target

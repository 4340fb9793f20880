"""What uv says on a system without a Python that fits."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _find_uv() -> Path | None:
    """Return where uv itself is, as `uv run` says; the command of that name may be a script."""
    path = os.environ.get("UV") or shutil.which("uv")
    return Path(path) if path and Path(path).read_bytes().startswith(b"\x7fELF") else None


UV = _find_uv()


@pytest.mark.skipif(UV is None, reason="uv itself is not found")
def test_without_a_python_that_fits_uv_says_what_to_install(tmp_path: Path) -> None:
    """It downloads none unasked, as the newest needs a later glibc than some systems have."""
    for name in ("pyproject.toml", "uv.lock"):
        shutil.copy(ROOT / name, tmp_path)
    done = subprocess.run(
        [str(UV), "run", "local_runner.py"],
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "No interpreter found for Python >=3.11, <3.14" in done.stderr
    assert "use `uv python install >=3.11, <3.14` to install" in done.stderr

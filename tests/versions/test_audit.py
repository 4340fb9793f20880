"""What `.ci/audit.py` makes of the answers of pip-audit, which a program of its name gives here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

AUDIT = Path(__file__).parents[2] / ".ci" / "audit.py"
_PROGRAM = '#!/bin/sh\ncase "$(cat $2 2>/dev/null)" in\n*10.0.1*) {known};;\n*) {locked};;\nesac\n'


def package(name: str, *found: str) -> dict[str, object]:
    vulns = [{"id": one, "aliases": [], "fix_versions": ["9"]} for one in found]
    return {"name": name, "vulns": vulns}


def answer(*packages: dict[str, object]) -> str:
    return f"echo '{json.dumps({'dependencies': packages})}'"


EXCEPTED, NEW = "CVE-2023-47248", "CVE-2030-1"
KNOWN = answer(package("pyarrow", EXCEPTED))


@pytest.mark.parametrize(
    ("known", "locked", "status", "said"),
    [
        (KNOWN, answer(package("a"), package("b", EXCEPTED)), 0, "2 packages, 0 of them not aud"),
        (KNOWN, answer(package("a", NEW)), 1, f"pip-audit: a: {NEW}, fixed in 9"),
        ("exit 1", "exit 1", 0, "no vulnerability service can be reached"),
        (answer({"name": "pyarrow", "skip_reason": "?"}), "exit 1", 0, "so nothing was audited"),
        (KNOWN, "exit 1", 0, "stopped answering"),
    ],
)
def test_the_audit(tmp_path: Path, known: str, locked: str, status: int, said: str) -> None:
    for name, text in (
        ("pip-audit", _PROGRAM.format(known=known, locked=locked)),
        ("uv", "#!/bin/sh\necho locked==1\n"),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        [sys.executable, str(AUDIT)],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (status, "")
    assert said in done.stdout

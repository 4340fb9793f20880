from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

_SECONDS = 60


@pytest.mark.slow
def test_no_configuration_file_ends_in_a_traceback_or_hangs(tmp_path: Path) -> None:
    from tests.fuzz.configuration import write_corpus

    write_corpus(tmp_path / "corpus")
    limits = [f"-max_total_time={_SECONDS}", "-timeout=10", "-rss_limit_mb=2048", "-max_len=2048"]
    command = [sys.executable, "-m", "tests.fuzz.configuration", str(tmp_path / "corpus")]
    done = subprocess.run(
        [*command, f"-dict={tmp_path / 'words.txt'}", f"-artifact_prefix={tmp_path}/", *limits],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    [runs] = re.findall(r"Done (\d+) runs", done.stderr)
    assert int(runs) > 300

"""When `.ci/trixie` skips, fails and passes, with fake programs."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "trixie"
BASH = shutil.which("bash")
REAL = ("bash", "dirname", "env", "mkdir", "mv", "realpath", "rm", "tail", "touch")

# Commands run in the root are logged to a file, and fail if they begin with $FAILS.
PROGRAMS = {
    "apt-get": "exit 1",
    "cp": "",
    "debootstrap": 'mkdir "$4"',
    "df": "echo Avail; echo 6",
    "git": "",
    "id": "echo 0",
    "install": "",
    "tar": "",
    "unshare": '[ "$2" = true ] || { shift 9; echo "$*" >> ran; [[ "$*" != "$FAILS"* ]]; }',
    "uv": '[ "$1" = run ] || echo "$PWD/cache"',
}

IN_ROOT = [
    "uv sync --locked --quiet --dry-run",
    "uv sync --locked --quiet --compile-bytecode",
    "python local_runner.py --sample --output",
    "pytest -m not slow",
]

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a copy of the script in `tmp_path`; "-" stands for a missing program."""

    def run(*, fails: str = "nothing", **programs: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / ".ci").mkdir()
        shutil.copy(SCRIPT, tmp_path / ".ci")
        (tmp_path / "bin").mkdir()
        for name in REAL:
            (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
        for name, text in {**PROGRAMS, **programs}.items():
            if text != "-":
                (tmp_path / "bin" / name).write_text(f"#!{BASH}\n{text}\n")
                (tmp_path / "bin" / name).chmod(0o755)
        return subprocess.run(
            [tmp_path / ".ci/trixie", "root"],
            cwd=tmp_path,
            env={"PATH": str(tmp_path / "bin"), "FAILS": fails},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def ran(folder: Path) -> list[str]:
    return (folder / "ran").read_text().splitlines()


@pytest.mark.parametrize(
    ("programs", "reason"),
    [
        ({"id": "echo 1000"}, "only root can make a Debian 13 root"),
        (
            {"uv": '[ "$2" != python ] || exit 1; echo "$PWD/cache"'},
            "this machine's Python already runs them",
        ),
        ({"debootstrap": "-"}, "debootstrap is not installed, and apt-get cannot install it"),
        ({"debootstrap": 'mkdir "$4"; exit 1'}, "debootstrap could not make a root of Debian 13"),
        ({"fails": IN_ROOT[1]}, "uv could not download the packages"),
    ],
)
def test_it_says_why_it_skips(
    run: Run, tmp_path: Path, programs: dict[str, str], reason: str
) -> None:
    done = run(**programs)
    said = f"trixie: the versions for Python 3.12 and later were not tested: {reason}.\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")
    # What is there next time has been finished.
    assert (tmp_path / "root").exists() == (tmp_path / "root/made").exists()


@pytest.mark.parametrize("fails", [IN_ROOT[0], *IN_ROOT[2:]])
def test_what_fails_there_fails(run: Run, tmp_path: Path, fails: str) -> None:
    """Also a lock file without what fits, which no download would mend."""
    assert run(fails=fails).returncode == 1
    assert ran(tmp_path)[-1].startswith(fails)


def test_it_runs_all_of_it(run: Run, tmp_path: Path) -> None:
    assert run().returncode == 0
    for command, begin in zip(ran(tmp_path), IN_ROOT, strict=True):
        assert command.startswith(begin)


def test_a_folder_of_others_stays(run: Run, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/thesis").touch()
    done = run()
    reason = "exists and was not made by this script: pass another folder."
    there = f"trixie: {tmp_path / 'root'} {reason}\n"
    assert (done.returncode, done.stderr) == (1, there)
    assert (tmp_path / "root/thesis").exists()

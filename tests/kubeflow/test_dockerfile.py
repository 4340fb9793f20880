"""Checks of the container image that need no build; `.ci/check_image.py` has the others."""

import fnmatch
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pipeline_def.code_digest import whole_digest
from tests.files import write_files
from tests.repository import ROOT


def is_in_context(path: str) -> bool:
    """Return whether .dockerignore lets `path` into the build: the last match decides."""
    taken = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.strip().removeprefix("!").strip("/")
        if not pattern or pattern.startswith("#"):
            continue
        parents = [path, *map(str, Path(path).parents)][:-1]
        if any(_matches(parent, pattern) for parent in parents):
            taken = line.strip().startswith("!")
    return taken


def _matches(path: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatch.fnmatchcase(Path(path).name, pattern.removeprefix("**/"))
    return path.count("/") == pattern.count("/") and fnmatch.fnmatchcase(path, pattern)


def test_data_caches_and_secrets_stay_out() -> None:
    hidden = [".git/config", "components/.env", "components/__pycache__/a.pyc", "credentials.json"]
    hidden += [".venv/bin/python", "output/metadata.sqlite", "tests/kubeflow/test_dockerfile.py"]
    assert [path for path in hidden if is_in_context(path)] == []


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image's folder /app, as the Dockerfile copies it."""
    app, work = tmp_path_factory.mktemp("app"), ""
    for keyword, words in re.findall(
        r"^(WORKDIR|COPY) (.+)$", (ROOT / "Dockerfile").read_text(), re.M
    ):
        if keyword == "WORKDIR":
            work = words
        elif work == "/app" and not words.startswith("--from"):
            *sources, target = words.split()
            for file in (file for source in sources for file in files_of(ROOT / source)):
                name = file.relative_to(ROOT)
                assert target == "./" or str(name).startswith(target)
                (app / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, app / name)
    return app


def files_of(source: Path) -> list[Path]:
    files = [source] if source.is_file() else [path for path in source.rglob("*") if path.is_file()]
    return [path for path in files if is_in_context(str(path.relative_to(ROOT)))]


def in_the_image(app: Path, *command: str) -> str:
    """Run Python as a step does: with `app` on the path, in another folder."""
    return subprocess.run(
        [sys.executable, *command],
        cwd="/",
        env={"PYTHONPATH": str(app)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.slow
def test_the_image_contains_all_code_of_the_digest_and_starts_its_programs(app: Path) -> None:
    """Every step compares its own digest with the compiled one, and stops if they differ."""
    script = "from pipeline_def import code_digest as c; print(c.__file__, c.whole_digest())"
    file, digest = in_the_image(app, "-c", script).split()
    assert Path(file).is_relative_to(app)
    assert digest == whole_digest()
    # The programs that start in it: a step, a runner, the server with its page.
    module = "pipeline_def.kubeflow.step.entrypoint"
    assert "--executor_input" in in_the_image(app, "-m", module, "--help")
    assert "compile" in in_the_image(app, str(app / "kfp_runner.py"), "--help")
    script = "from pipeline_def.apps.serve import app, command, model, page; print(page.__file__)"
    assert Path(in_the_image(app, "-c", script).strip()).is_relative_to(app)
    names = {path.name for path in (app / "pipeline_def/apps/serve/templates").iterdir()}
    assert names >= {"page.html", "style.css"}


def test_the_image_starts_beams_worker_or_the_given_command() -> None:
    [entrypoint] = re.findall(r"^ENTRYPOINT (\[.+\])$", (ROOT / "Dockerfile").read_text(), re.M)
    words = json.loads(entrypoint.replace("/opt/apache/beam/boot", "echo boot"))
    for arguments, printed in (
        (("--id=1", "--semi_persist_dir=/a b"), "boot --id=1 --semi_persist_dir=/a b\n"),
        (("echo", "a  b"), "a  b\n"),
    ):
        done = subprocess.run([*words, *arguments], capture_output=True, text=True, check=True)
        assert done.stdout == printed


def test_the_image_has_what_beams_worker_asks_for() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    locked = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    beam, _ = sorted(package["version"] for package in locked if package["name"] == "apache-beam")
    assert f"ARG BEAM_IMAGE=apache/beam_python3.11_sdk:{beam}\n" in dockerfile
    # It asks pip whether Beam is installed, and refuses to start otherwise.
    assert '"pip==${PIP_VERSION}"' in dockerfile
    assert "COPY --from=beam /opt/apache/beam /opt/apache/beam\n" in dockerfile


def test_unused_files_are_removed_and_licences_stay(tmp_path: Path) -> None:
    kept = {"kept/a.py", "kept/include/LICENSE", "kept/tests.py"}
    gone = {"kept/include/a.h", "kept/tests/sub/test_a.py", "kept/a.pyi", "clang/b.py"}
    record = "clang/b.py,,\n../../bin/clang,,\n"
    info = {"METADATA": "Name: libclang\nVersion: 1\n", "RECORD": record}
    files = dict.fromkeys(kept | gone, "") | {
        f"libclang-1.dist-info/{k}": v for k, v in info.items()
    }
    site, program = tmp_path / "site", tmp_path / "strip"
    write_files(site, files)
    program.symlink_to(shutil.which("true") or "")
    command = [sys.executable, str(ROOT / ".ci" / "slim_packages.py"), str(site)]
    subprocess.run(command, env={"PATH": str(tmp_path)}, check=True)
    left = {str(path.relative_to(site)) for path in site.rglob("*")}
    assert (left >= kept, left & {*gone, "kept/tests"}) == (True, set())

"""What can be told of the image without building it; `.ci/check_image.py` tells the rest."""

from __future__ import annotations

import ast
import fnmatch
import importlib.metadata
import re
import shlex
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENTRYPOINT = "pipeline_def.kubeflow.step.entrypoint"
NOT_IN_IMAGE = [
    ".git/config",
    ".venv/bin/python",
    ".env",
    ".mypy_cache/cache.json",
    ".pytest_cache/README.md",
    ".ruff_cache/0/1",
    "benchmarks/__init__.py",
    "components/.env",
    "components/__pycache__/ingest.cpython-311.pyc",
    "credentials.json",
    "input_benchmark/recommended.yaml",
    "output/metadata.sqlite",
    "pipeline_def/kubeflow/__pycache__/compiler.cpython-311.pyc",
    "tests/kubeflow/test_dockerfile.py",
]


def instructions(text: str) -> list[tuple[str, str]]:
    """Return the keyword and the rest of every instruction of a Dockerfile."""
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    split = [line.strip().partition(" ") for line in lines if line.strip()]
    return [(keyword.upper(), rest.strip()) for keyword, _, rest in split]


def excluded(path: str, patterns: str) -> bool:
    """Return whether .dockerignore leaves out `path`: the last pattern that matches decides."""
    out = False
    for line in patterns.splitlines():
        pattern = line.strip().removeprefix("!").strip("/")
        if not pattern or pattern.startswith("#"):
            continue
        parents = [path, *map(str, Path(path).parents)][:-1]
        if any(_matches(parent, pattern) for parent in parents):
            out = not line.strip().startswith("!")
    return out


def _matches(path: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatch.fnmatchcase(Path(path).name, pattern.removeprefix("**/"))
    return path.count("/") == pattern.count("/") and fnmatch.fnmatchcase(path, pattern)


@pytest.fixture(scope="module")
def dockerfile() -> list[tuple[str, str]]:
    return instructions((ROOT / "Dockerfile").read_text())


@pytest.fixture(scope="module")
def ignored() -> str:
    return (ROOT / ".dockerignore").read_text()


def values(dockerfile: list[tuple[str, str]], keyword: str) -> list[str]:
    return [rest for name, rest in dockerfile if name == keyword]


def arguments(dockerfile: list[tuple[str, str]]) -> dict[str, str]:
    """Return the default of every build argument that has one."""
    return dict(rest.split("=", 1) for rest in values(dockerfile, "ARG") if "=" in rest)


def copied(dockerfile: list[tuple[str, str]]) -> list[str]:
    """Return what is copied from the repository."""
    words = [shlex.split(rest) for rest in values(dockerfile, "COPY")]
    return [
        source.rstrip("/")
        for line in words
        if not line[0].startswith("--from")
        for source in line[:-1]
    ]


def test_every_instruction_is_one_of_dockerfiles(dockerfile: list[tuple[str, str]]) -> None:
    known = {"ARG", "CMD", "COPY", "ENV", "FROM", "LABEL", "RUN", "USER", "WORKDIR"}
    assert {name for name, _ in dockerfile} == known


def test_what_is_copied_exists_and_is_not_ignored(
    dockerfile: list[tuple[str, str]], ignored: str
) -> None:
    sources = copied(dockerfile)
    assert sources
    for source in sources:
        assert (ROOT / source).exists()
        files = [ROOT / source, *(ROOT / source).rglob("*.py")]
        assert not [f for f in files if excluded(str(f.relative_to(ROOT)), ignored)]


@pytest.mark.parametrize("path", NOT_IN_IMAGE)
def test_data_caches_and_secrets_stay_out(ignored: str, path: str) -> None:
    assert excluded(path, ignored)


def test_every_module_that_a_step_may_import_is_copied(dockerfile: list[tuple[str, str]]) -> None:
    sources = {Path(source).stem for source in copied(dockerfile)}
    ours = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    ours |= {path.stem for path in ROOT.glob("*.py")}
    imported = {name for file in python_files(dockerfile) for name in _imports(file)} & ours
    assert {"components", "pipeline_def"} <= imported
    assert imported <= sources


def test_every_library_that_a_step_may_import_is_installed(
    dockerfile: list[tuple[str, str]],
) -> None:
    installed = _locked_without_dev()
    distributions = importlib.metadata.packages_distributions()
    imported = {name for file in python_files(dockerfile) for name in _imports(file)}
    assert "tensorflow" in imported
    missing = {
        name
        for name in imported & set(distributions)
        if not any(_normal(found) in installed for found in distributions[name])
    }
    assert not missing


def python_files(dockerfile: list[tuple[str, str]]) -> list[Path]:
    sources = [ROOT / source for source in copied(dockerfile)]
    files = [file for source in sources for file in (source, *source.rglob("*.py"))]
    return [file for file in files if file.suffix == ".py"]


def _locked_without_dev() -> set[str]:
    """Return the names of the packages that `uv sync --no-dev` installs."""
    packages = {p["name"]: p for p in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
    todo = [("tfx-image-pipeline", "")]
    seen = set()
    while todo:
        name, extra = node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        package = packages[name]
        extras = package.get("optional-dependencies", {})
        for needed in extras.get(extra, []) if extra else package.get("dependencies", []):
            todo += [(needed["name"], other) for other in ("", *needed.get("extra", []))]
    return {name for name, _ in seen}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _imports(file: Path) -> set[str]:
    """Return the top-level packages that a file imports, anywhere in it."""
    names = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
    return {name.partition(".")[0] for name in names}


def test_the_base_has_the_python_of_pyproject(dockerfile: list[tuple[str, str]]) -> None:
    base = arguments(dockerfile)["BASE_IMAGE"]
    match = re.fullmatch(r"python:(3\.\d+)-slim-bookworm(@sha256:[0-9a-f]{64})?", base)
    assert match
    version = match[1]
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert wanted == f">={version},<3.{int(version.removeprefix('3.')) + 1}"
    # The folder of the packages has the version in its name.
    folders = re.findall(r"lib/python(3\.\d+)/", (ROOT / "Dockerfile").read_text())
    assert set(folders) == {version}
    assert {rest.split()[0] for rest in values(dockerfile, "FROM")} == {"${BASE_IMAGE}"}


def test_the_user_of_the_image_is_a_number_and_not_root(dockerfile: list[tuple[str, str]]) -> None:
    final = dockerfile[max(i for i, (name, _) in enumerate(dockerfile) if name == "FROM") :]
    users = values(final, "USER")
    assert users
    # Kubernetes' runAsNonRoot cannot tell of a name whether it is root's.
    assert re.fullmatch(r"[1-9]\d*(:\d+)?", users[-1])


def test_dependencies_are_the_locked_ones(dockerfile: list[tuple[str, str]]) -> None:
    (sync,) = [rest for rest in values(dockerfile, "RUN") if "uv sync" in rest]
    for option in ("--locked", "--no-dev", "--compile-bytecode"):
        assert option in sync.split()
    extras = re.findall(r"--extra=(\w+)", sync)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras) <= set(project["optional-dependencies"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", arguments(dockerfile)["UV_VERSION"])


def test_byte_code_is_not_turned_off(dockerfile: list[tuple[str, str]]) -> None:
    assert "PYTHONDONTWRITEBYTECODE" not in " ".join(values(dockerfile, "ENV"))


def test_the_default_command_is_the_help_of_the_entrypoint(
    dockerfile: list[tuple[str, str]],
) -> None:
    (command,) = values(dockerfile, "CMD")
    assert ast.literal_eval(command) == ["python", "-m", ENTRYPOINT, "--help"]
    assert (ROOT / (ENTRYPOINT.replace(".", "/") + ".py")).exists()

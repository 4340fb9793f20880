"""The digest of a step's code covers the files and libraries that it imports."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.contract.errors import ConfigurationError
from components.trainer.config.model import import_function
from pipeline_def import code_digest, steps
from tests.files import write_files
from tests.repository import ROOT

# Every step, in a run's order.
STEPS = list(steps.STEPS)


LEARNERS = {"Tuner", "Trainer"}
READERS = {"ImageExampleGen", "ImagePredictor"}
STORES = {*STEPS} - {"Transform", "Evaluator"}


@pytest.mark.parametrize(
    ("file", "stale"),
    [
        ("components/images/check.py", READERS),
        (
            "components/images/canonical.py",
            {*READERS, *LEARNERS, "Transform", "Evaluator", "ImageReport"},
        ),
        ("components/trainer/networks/networks.py", LEARNERS),
        ("components/evaluation/baseline.py", {"BaselineFinder"}),
        ("components/storage/object_store.py", STORES),
        ("components/report/page/templates/style.css", {"ImageReport"}),
        ("components/contract/example.py", {*STEPS} - {"Pusher"}),
        ("README.md", set()),
        # Byte code that is being written.
        ("components/images/__pycache__/check.cpython-311.pyc.139874", set()),
    ],
)
@pytest.mark.slow
def test_changed_code_invalidates_its_steps(
    copy_of_the_code: Path, original: dict[str, str], file: str, stale: set[str]
) -> None:
    path = copy_of_the_code / file
    path.parent.mkdir(exist_ok=True)
    path.touch()
    with changed(path) as text:
        path.write_text(f"{text}# another line\n")
        assert stale_steps(original) == stale


def test_other_versions_of_libraries_invalidate_all_steps(
    copy_of_the_code: Path, original: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step compares its digest with the compiled one: the other set of libraries is rejected."""
    lock = copy_of_the_code / "uv.lock"
    with changed(lock) as text:
        lock.write_text(re.sub(r'(name = "simplejpeg"\nversion = )"[^"]+"', r'\1"0.0.1"', text))
        code_digest._libraries.cache_clear()
        assert stale_steps(original) == {*STEPS}
    monkeypatch.setattr(sys, "version_info", (3, 13) if sys.version_info < (3, 12) else (3, 11))
    code_digest._libraries.cache_clear()
    assert stale_steps(original) == {*STEPS}
    code_digest._libraries.cache_clear()


@pytest.mark.parametrize("file", ["components/images/check.py", "pipeline_def/x.css", "uv.lock"])
def test_any_file_changes_the_digest_of_the_program(
    copy_of_the_code: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    (copy_of_the_code / "pipeline_def").mkdir(exist_ok=True)
    monkeypatch.setattr(code_digest, "__file__", copy_of_the_code / "pipeline_def/code_digest.py")
    before = code_digest.program_digest()
    (copy_of_the_code / "pipeline_def" / "__pycache__").mkdir(exist_ok=True)
    (copy_of_the_code / "pipeline_def" / "__pycache__" / "x.pyc.139874").write_bytes(b"half")
    assert before == code_digest.program_digest()
    path = copy_of_the_code / file
    path.touch()
    with changed(path) as text:
        path.write_text(f"{text}# more\n")
        assert code_digest.program_digest() != before


def test_a_newly_installed_library_changes_the_digest_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = code_digest.program_digest()
    (tmp_path / "another-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert code_digest.program_digest() != before


def stale_steps(original: dict[str, str]) -> set[str]:
    return {step for step in STEPS if code_digest.code_digest(step) != original[step]}


@contextlib.contextmanager
def changed(file: Path) -> Iterator[str]:
    """Yield the text of a file, and restore it."""
    text = file.read_text()
    try:
        yield text
    finally:
        file.write_text(text)


@pytest.fixture(scope="module")
def original() -> dict[str, str]:
    """Digests of the unchanged code, one for each step."""
    digests = {step: code_digest.code_digest(step) for step in STEPS}
    assert len(set(digests.values())) == len(STEPS) == 13
    return digests


@pytest.fixture(scope="module")
def whole_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("code")
    for package in code_digest._OURS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    shutil.copy(ROOT / "README.md", folder)
    shutil.copy(ROOT / "uv.lock", folder)
    return folder


@pytest.fixture
def copy_of_the_code(
    original: dict[str, str], whole_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A copy that tests may change; digests are taken from it."""
    assert original
    monkeypatch.setattr(code_digest, "_ROOT", whole_copy)
    return whole_copy


@pytest.mark.slow
def test_changed_code_of_a_user_invalidates_trainer(
    code_of_a_user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def digest(step: str = "Trainer") -> str:
        return code_digest.code_digest(step, None, "my_networks.networks.net")

    before, of_others = digest(), digest("Transform")
    assert before != code_digest.code_digest("Trainer")
    assert of_others == code_digest.code_digest("Transform")
    for path in (path for path in code_of_a_user.rglob("*.py")):
        with changed(path) as text:
            path.write_text(text + "# more\n")
            counts = path.name not in ("unused.py", "typing_only.py")
            assert (digest() != before) == counts, path
    monkeypatch.setattr(importlib.metadata, "version", lambda name: f"{name} 2")
    assert digest() != before, "another version of a library"


@pytest.mark.parametrize(
    ("link", "files"),
    [
        ("", {"mine/net.py": "", "mine/net/data.txt": ""}),
        ("", {"mine/net.py": "import blocks", "path/blocks.py": ""}),
        ("mine/net.py", {"net.py": "import blocks", "mine/blocks.py": ""}),
        ("mine/net", {"linked/__init__.py": "from . import blocks", "linked/blocks.py": ""}),
        ("", {"mine/net.py": "if TYPE_CHECKING: 1\nelse: import blocks", "mine/blocks.py": ""}),
    ],
    ids=["folder beside it", "elsewhere on the path", "linked file", "linked package", "else"],
)
def test_code_counts_where_python_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str, files: dict[str, str]
) -> None:
    write_files(tmp_path, files)
    if link:
        (tmp_path / "mine").mkdir(exist_ok=True)
        (tmp_path / link).symlink_to(tmp_path / next(iter(files)).removesuffix("/__init__.py"))
    monkeypatch.chdir(tmp_path / "mine")
    monkeypatch.syspath_prepend(tmp_path / "path")
    for path in (tmp_path / name for name in files if name.endswith(".py")):
        before = code_digest.program_digest("net.build")
        path.write_text(f"{path.read_text()}\n# more")
        assert code_digest.program_digest("net.build") != before, path


@pytest.mark.parametrize("package", ["mine", "mine.inner"])
def test_a_run_imports_changed_code_of_a_user_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    """Folders without `__init__.py` hold their modules too."""
    folder = tmp_path / package.replace(".", "/")
    write_files(folder, {"net.py": f"from {package} import blocks\nbuild = blocks.build\n"})
    monkeypatch.syspath_prepend(tmp_path)
    for result in (1, 234):
        write_files(folder, {"blocks.py": f"def build(): return {result}\n"})
        code_digest.forget_imports(f"{package}.net.build", None)
        assert import_function("model.build_fn", f"{package}.net.build")() == result
    code_digest.forget_imports("json.dumps", None)
    assert sys.modules["json"] is json


@pytest.mark.parametrize("module", ["nowhere.at_all", "my_networks.nowhere"])
def test_missing_module_of_a_user(code_of_a_user: Path, module: str) -> None:
    function = f"{module}.net"
    for option, given in (("model.build_fn", (function,)), ("augmentation.fn", (None, function))):
        message = rf"{option} is '{function}': there is no module {module} in {code_of_a_user}"
        with pytest.raises(ConfigurationError, match=message):
            code_digest.code_digest("Trainer", *given)


@pytest.fixture
def code_of_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is not on Python's path."""
    files = {
        "my_networks/__init__.py": "",
        "my_networks/networks.py": "import my_pixels, a_library\nfrom .parts import blocks\n"
        "if TYPE_CHECKING:\n    import typing_only\n",
        "my_networks/parts/__init__.py": "",
        "my_networks/parts/blocks.py": "from ..networks import net\n",
        "my_networks/unused.py": "",
        "my_pixels.py": "",
        "typing_only.py": "",
    }
    monkeypatch.chdir(tmp_path)
    return write_files(tmp_path, files)


IMPORT_ALL = """
import importlib, json, sys
from pipeline_def.code_digest import _OURS
from pipeline_def.steps import STEPS
libraries = set()
for step, row in STEPS.items():
    for name in [name for name in sys.modules if name.partition(".")[0] in _OURS]:
        del sys.modules[name]
    for module in row.code:
        importlib.import_module(module)
    files = [m.__file__ for n, m in sys.modules.items() if n.partition(".")[0] in _OURS]
    print(json.dumps([step, [file for file in files if file]]))
"""


@pytest.mark.slow
def test_the_digest_covers_what_steps_import() -> None:
    """Python itself imports each step, in its own process."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IMPORT_ALL],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    assert loaded.keys() == set(STEPS)
    for step, files in loaded.items():
        covered = code_digest.reach(steps.STEPS[step].code)
        assert {str(Path(file).relative_to(ROOT)) for file in files} <= covered, step

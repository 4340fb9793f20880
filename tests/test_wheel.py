"""Build the wheel, unpack it, and use it without the repository."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

from setup import COMMANDS, FOLDERS, PACKAGE, rename_imports
from tests.repository import ROOT


def test_imports_of_our_modules_are_renamed_and_nothing_else() -> None:
    for line in (
        # "|" marks where the name of the package is inserted.
        "from |components.ingest.config import IngestConfig",
        "if lazily:\n    from |pipeline_def.config import config, options",
        # What only looks like one of our modules.
        "from kfp import components",
        "from . import components",
        "text = 'from components.ingest import config'",
    ):
        becomes = line.replace("|", f"{PACKAGE}.")
        assert rename_imports(line.replace("|", "")) == rename_imports(becomes) == becomes
    with pytest.raises(ValueError, match=r"`import components\.ingest` cannot be renamed"):
        rename_imports("import components.ingest")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel, built by uv from the source distribution."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    runners = (f"{name}.py" for name in COMMANDS)
    for name in ("LICENSE", "README.md", "pyproject.toml", "setup.py", *runners):
        shutil.copy(ROOT / name, source)
    # Without isolation nothing is downloaded: setuptools is among the dependencies.
    options = ["--no-build-isolation", "--python", sys.executable, "--out-dir", str(folder)]
    subprocess.run(["uv", "build", "--quiet", *options], cwd=source, check=True, timeout=120)
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def files(folder: Path) -> set[str]:
    paths = (path for name in FOLDERS for path in (folder / name).rglob("*") if path.is_file())
    return {str(path.relative_to(folder)) for path in paths if "__pycache__" not in path.parts}


_USE = """
import importlib, pkgutil, sys
import tfx_image_pipeline
from tfx_image_pipeline import components

for module in pkgutil.walk_packages(tfx_image_pipeline.__path__, "tfx_image_pipeline."):
    importlib.import_module(module.name)
for name in components.__all__:
    assert getattr(components, name).__module__.startswith("tfx_image_pipeline."), name

from tfx_image_pipeline.pipeline_def.code_digest import code_digest, whole_digest
from tfx_image_pipeline.pipeline_def.config.config import Config
from tfx_image_pipeline.components.trainer.config.recipes import resolve
from tfx_image_pipeline.components.trainer.config.training import TrainingConfig
from tfx_image_pipeline.pipeline_def.pipeline import create_pipeline
from tfx.utils import import_utils

assert len({whole_digest(), code_digest("Trainer"), code_digest("ImageReport")}) == 3
given = Config(data="photos", output=sys.argv[1], training=TrainingConfig(minutes=1))
config, _ = resolve(given, shorter_side=32, images=100)
steps = create_pipeline(config).components
paths = {
    step.exec_properties[name]
    for step in steps
    for name in ("run_fn", "preprocessing_fn", "preview_fn")
    if step.exec_properties.get(name)
}
assert len(paths) == 3, paths
for path in paths:
    assert path.startswith("tfx_image_pipeline."), path
    assert callable(import_utils.import_func_from_module(*path.rsplit(".", 1)))
assert not {"components", "pipeline_def"} & sys.modules.keys()
"""


def run_installed(installed: Path, folder: Path, *command: str) -> str:
    """Run Python in `folder`, which contains the user's own module `components`; return stdout."""
    (folder / "components.py").write_text("raise RuntimeError('the components of the user')\n")
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=os.environ
        | {"PYTHONPATH": str(installed), "TF_CPP_MIN_LOG_LEVEL": "3", "SLIPCOVER_ENABLED": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.xdist_group("wheel")
def test_the_wheel_holds_every_file_and_needs_none_of_the_repository(
    installed: Path, tmp_path: Path
) -> None:
    assert files(installed / PACKAGE) == files(ROOT)
    run_installed(installed, tmp_path, "-c", _USE, str(tmp_path / "out"))
    step = f"{PACKAGE}.pipeline_def.kubeflow.step.entrypoint"
    run_installed(installed, tmp_path, "-m", step, "--help")
    [scripts] = installed.glob("*.dist-info/entry_points.txt")
    parser = ConfigParser()
    parser.read(scripts)
    assert {*parser["console_scripts"]} == {*COMMANDS.values()}
    for command, function in parser["console_scripts"].items():
        module, name = function.split(":")
        program = f"from {module} import {name}; {name}()"
        printed = run_installed(installed, tmp_path, "-c", program, "--help")
        assert printed.startswith(f"usage: {command} "), printed
        assert "runner.py" not in printed


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.xdist_group("wheel")
def test_the_example_runs_on_the_wheel(installed: Path, tmp_path: Path) -> None:
    """Its own test runs our components beside TFX's Evaluator, BulkInferrer and Pusher."""
    project = shutil.copytree(ROOT / "examples", tmp_path / "project")
    run_installed(installed, project, "-m", "pytest", "-q", "tests")
    [path] = re.findall(r"compile --config (\S+)", (project / "README.md").read_text())
    compile_ = ["compile", "--config", path, "--data", "gs://bucket/images", "--image", "mine:1"]
    command = f"from {PACKAGE}.kfp_runner import main; raise SystemExit(main({compile_}))"
    run_installed(installed, project, "-c", command)
    assert "my_images.augmentation.augment" in (project / "pipeline.yaml").read_text()


_RUN_NOTEBOOK = """
import functools, json, sys
import sklearn.datasets
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
# The digits 0 to 3 only.
sklearn.datasets.load_digits = functools.partial(sklearn.datasets.load_digits, n_class=4)
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        shell.run_cell("".join(cell["source"])).raise_error()
        assert shell.user_ns.get("_exit_code", 0) == 0, cell
print(shell.user_ns["Out"].popitem()[1].to_csv())
"""


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.xdist_group("wheel")
def test_the_notebook_runs_on_the_wheel(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / "bin" / "tfx-images"
    command.parent.mkdir()
    program = f"from {PACKAGE}.local_runner import run_program; run_program()"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{program}" "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = str(ROOT / "examples" / "quickstart.ipynb")
    printed = run_installed(installed, tmp_path, "-c", _RUN_NOTEBOOK, notebook)
    assert re.search(r"^0,digits/3/\d+\.png,answered,", printed, re.MULTILINE), printed

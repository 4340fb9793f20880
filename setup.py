"""Builds the wheel, for other people's pipelines: `uv build`.

Here the packages are called `components` and `pipeline_def`, as other projects' may be. In the
wheel they lie in `tfx_image_pipeline`, and what names them says so: imports, and the dotted paths
in strings by which TFX, Beam and Kubeflow find executors and functions. An alias, a second name for
the same modules, would not do: `from components…` within the wheel would find the user's own.

The runners become commands, which all messages name: `tfx-images` and `tfx-images-kfp`.
"""

import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

PACKAGE = "tfx_image_pipeline"
FOLDERS = ("components", "pipeline_def")
COMMANDS = {"local_runner": "tfx-images", "kfp_runner": "tfx-images-kfp"}
"""Module of a runner → command."""

_ROOT = Path(__file__).resolve().parent
_INIT = '"""TFX components for image folders: `from tfx_image_pipeline.components import …`."""\n'

# After a slash it is a folder, after a dot an attribute.
_PATH = re.compile(rf"(?<![\w./])({'|'.join(FOLDERS)})(?=\.(\w+))")
_WHOLE = re.compile(rf"(?<=\bfrom )({'|'.join(FOLDERS)})(?= import\b)")
_RUNNER = re.compile(rf"(?:\buv run )?\b({'|'.join(COMMANDS)})\.py\b")


def rename(text: str) -> str:
    """Put `PACKAGE` before each dotted path of one of our modules, in code, strings and comments.

    Files of runners become commands. What only looks like one of our modules, such as
    `components.append`, stays as it is. Renamed text does, too.
    """

    def with_package(path: re.Match[str]) -> str:
        place = _ROOT / path[1] / path[2]
        is_ours = place.is_dir() or place.with_suffix(".py").is_file()
        return f"{PACKAGE}.{path[1]}" if is_ours else path[1]

    text = _RUNNER.sub(lambda runner: COMMANDS[runner[1]], text)
    return _WHOLE.sub(rf"{PACKAGE}.\1", _PATH.sub(with_package, text))


class BuildPackage(build_py):
    """Copies the packages into `PACKAGE`, renaming them in what they say."""

    def run(self) -> None:
        """Copy all files, into an empty folder: an earlier build may have left others."""
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        whole = Path(self.build_lib, PACKAGE)
        (whole / "__init__.py").write_text(_INIT, encoding="utf-8")
        (whole / "py.typed").touch()
        for template in whole.glob("**/templates/*"):
            template.write_text(rename(template.read_text(encoding="utf-8")), encoding="utf-8")

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """List the modules of a package: in the repository's own folder only the runners."""
        found: list[tuple[str, str, str]] = super().find_package_modules(package, package_dir)
        return [module for module in found if package != PACKAGE or module[1] in COMMANDS]

    def build_module(self, module: str, module_file: str, package: str) -> tuple[str, bool]:
        """Copy a module; return its path, and whether it was written."""
        path, written = super().build_module(module, module_file, package)
        file = Path(path)
        file.write_text(rename(file.read_text(encoding="utf-8")), encoding="utf-8")
        return path, written


if __name__ == "__main__":
    found = find_packages(str(_ROOT), include=[f"{folder}*" for folder in FOLDERS])
    setup(
        packages=[PACKAGE, *(f"{PACKAGE}.{name}" for name in found)],
        package_dir={PACKAGE: ".", **{f"{PACKAGE}.{folder}": folder for folder in FOLDERS}},
        entry_points={
            "console_scripts": [
                f"{command} = {PACKAGE}.{runner}:run_program"
                for runner, command in COMMANDS.items()
            ]
        },
        package_data={"": ["templates/*"]},
        cmdclass={"build_py": BuildPackage},
    )

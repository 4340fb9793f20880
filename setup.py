"""Builds the wheel, for other people's pipelines: `uv build`.

Here the packages are called `components` and `pipeline_def`, as other projects' may be. In the
wheel they lie in `tfx_image_pipeline`, and what names them says so: imports, and the dotted paths
in strings by which TFX, Beam and Kubeflow find executors and functions. An alias, a second name for
the same modules, would not do: `from components…` within the wheel would find the user's own.
"""

import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

PACKAGE = "tfx_image_pipeline"
FOLDERS = ("components", "pipeline_def")

_ROOT = Path(__file__).resolve().parent
_INIT = '"""TFX components for image folders: `from tfx_image_pipeline.components import …`."""\n'

# After a slash it is a folder, after a dot an attribute.
_PATH = re.compile(rf"(?<![\w./])({'|'.join(FOLDERS)})(?=\.(\w+))")
_WHOLE = re.compile(rf"(?<=\bfrom )({'|'.join(FOLDERS)})(?= import\b)")


def rename(text: str) -> str:
    """Put `PACKAGE` before each dotted path of one of our modules, in code, strings and comments.

    What only looks like one, such as `components.append`, stays as it is. Renamed text does, too.
    """

    def with_package(path: re.Match[str]) -> str:
        place = _ROOT / path[1] / path[2]
        is_ours = place.is_dir() or place.with_suffix(".py").is_file()
        return f"{PACKAGE}.{path[1]}" if is_ours else path[1]

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

    def build_module(self, module: str, module_file: str, package: str) -> tuple[str, bool]:
        """Copy a module; return its path, and whether it was written."""
        path, written = super().build_module(module, module_file, package)
        file = Path(path)
        file.write_text(rename(file.read_text(encoding="utf-8")), encoding="utf-8")
        return path, written


if __name__ == "__main__":
    found = find_packages(str(_ROOT), include=[f"{folder}*" for folder in FOLDERS])
    setup(
        packages=[f"{PACKAGE}.{name}" for name in found],
        package_dir={f"{PACKAGE}.{folder}": folder for folder in FOLDERS},
        package_data={"": ["templates/*"]},
        cmdclass={"build_py": BuildPackage},
    )

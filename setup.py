"""Builds the wheel, for other people's pipelines: `uv build`.

Here the packages are called `components` and `pipeline_def`, as other projects' may be, so in the
wheel they lie in `tfx_image_pipeline`, and their imports say so. Code that needs the dotted path of
a module derives it from `__name__`. The runners become commands, which all messages name:
`tfx-images` and `tfx-images-kfp`.
"""

import ast
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


def rename_imports(source: str) -> str:
    """Put `PACKAGE` before each of our modules that a module imports."""
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            if node.module.partition(".")[0] in FOLDERS:
                line = lines[node.lineno - 1]
                renamed = line.replace(node.module, f"{PACKAGE}.{node.module}", 1)
                lines[node.lineno - 1] = renamed
        elif isinstance(node, ast.Import):
            ours = [name.name for name in node.names if name.name.partition(".")[0] in FOLDERS]
            if ours:
                raise ValueError(f"Write `from … import`: `import {ours[0]}` cannot be renamed.")
    return "".join(lines)


def name_commands(text: str) -> str:
    """Replace the files of the runners by the commands that the wheel installs."""
    for runner, command in COMMANDS.items():
        text = text.replace(f"uv run {runner}.py", command).replace(f"{runner}.py", command)
    return text


class BuildPackage(build_py):
    """Copies the packages into `PACKAGE`, with imports and commands as they are called there."""

    def run(self) -> None:
        """Copy all files, into an empty folder: an earlier build may have left others."""
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        whole = Path(self.build_lib, PACKAGE)
        (whole / "__init__.py").write_text(_INIT, encoding="utf-8")
        (whole / "py.typed").touch()
        for template in whole.glob("**/templates/*"):
            template.write_text(
                name_commands(template.read_text(encoding="utf-8")), encoding="utf-8"
            )

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """List the modules of a package: in the repository's own folder only the runners."""
        found: list[tuple[str, str, str]] = super().find_package_modules(package, package_dir)
        return [module for module in found if package != PACKAGE or module[1] in COMMANDS]

    def build_module(self, module: str, module_file: str, package: str) -> tuple[str, bool]:
        """Copy a module; return its path, and whether it was written."""
        path, written = super().build_module(module, module_file, package)
        file = Path(path)
        source = file.read_text(encoding="utf-8")
        file.write_text(name_commands(rename_imports(source)), encoding="utf-8")
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

"""Removes from site-packages what no step of the pipeline imports: `slim_packages.py FOLDER`.

For the container image. `.ci/check_slim` runs the pipeline on what is left.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

# Of notebooks, of services of Google that no component calls, and what builds extensions.
_NOTEBOOKS = (
    *("argon2-cffi", "argon2-cffi-bindings", "babel", "bleach", "debugpy", "ipykernel"),
    *("ipywidgets", "jedi", "jupyter-builder", "jupyter-client", "jupyter-core"),
    *("jupyter-events", "jupyter-lsp", "jupyter-server", "jupyter-server-terminals"),
    *("jupyterlab", "jupyterlab-pygments", "jupyterlab-server", "jupyterlab-widgets"),
    *("nbclient", "nbconvert", "nbformat", "notebook", "notebook-shim", "parso", "pyzmq"),
    *("send2trash", "terminado", "widgetsnbextension"),
)
_SERVICES = (
    *("docker", "google-cloud-aiplatform", "google-cloud-bigtable", "google-cloud-build"),
    *("google-cloud-dlp", "google-cloud-language", "google-cloud-recommendations-ai"),
    *("google-cloud-spanner", "google-cloud-videointelligence", "google-cloud-vision"),
    *("google-genai", "pg8000", "pymysql", "python-tds"),
)
_BUILDERS = ("libclang", "pip")

# Below a package: its tests, and what compilers and type checkers read.
_FOLDERS = ("tests", "include", "jupyterlab", "nbextensions")
_SUFFIXES = (".a", ".h", ".hpp", ".pxd", ".pyi", ".pyx", ".js.map")


def main() -> None:
    """Remove, strip the libraries of their symbols, and print what that saved."""
    site = Path(sys.argv[1])
    before = _size(site)
    for name in (*_NOTEBOOKS, *_SERVICES, *_BUILDERS):
        _remove_distribution(site, name)
    for folder in sorted(site.rglob("*")):
        if folder.is_dir() and folder.name in _FOLDERS:
            shutil.rmtree(folder)
    for file in site.rglob("*"):
        if file.name.endswith(_SUFFIXES):
            file.unlink()
    _strip(site)
    print(f"{before / 1e6:,.0f} MB of packages, of which {_size(site) / 1e6:,.0f} MB are left")


def _size(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*"))


def _remove_distribution(site: Path, name: str) -> None:
    """Remove the files of a distribution, and those that Python compiled from them."""
    found = metadata.distributions(name=name, path=[str(site)])
    for distribution in found:
        for file in distribution.files or ():
            path = Path(str(distribution.locate_file(file)))
            if not path.is_relative_to(site):
                continue
            path.unlink(missing_ok=True)
            for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
                compiled.unlink()


def _strip(site: Path) -> None:
    """Remove symbols that the loader does not need, 200 MB, where there is a `strip`."""
    if shutil.which("strip") is None:
        raise SystemExit("strip is missing: install binutils")
    libraries = [file for file in site.rglob("*.so*") if file.is_file() and not file.is_symlink()]
    # auditwheel has changed the libraries in *.libs in a way that strip would destroy.
    own = [str(file) for file in libraries if not file.parent.name.endswith(".libs")]
    subprocess.run(["strip", "--strip-unneeded", *own], check=True)


if __name__ == "__main__":
    main()

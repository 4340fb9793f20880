"""Removes from site-packages what no step of the pipeline imports: `slim_packages.py FOLDER`.

For the container image. `.ci/check_slim` runs the pipeline on what is left.
"""

from __future__ import annotations

import py_compile
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

# Of notebooks, of services of Google that no component calls, and what builds extensions.
_NOTEBOOKS = (
    *("argon2-cffi", "argon2-cffi-bindings", "babel", "bleach"),
    *("jedi", "jupyter-builder"),
    *("jupyter-events", "jupyter-lsp", "jupyter-server", "jupyter-server-terminals"),
    *("jupyterlab", "jupyterlab-pygments", "jupyterlab-server", "jupyterlab-widgets"),
    *("nbclient", "nbconvert", "nbformat", "notebook", "notebook-shim", "parso"),
    *("send2trash", "terminado", "widgetsnbextension"),
)
_SERVICES = (
    *("google-cloud-aiplatform", "google-cloud-bigtable", "google-cloud-build"),
    *("google-cloud-dlp", "google-cloud-language", "google-cloud-recommendations-ai"),
    *("google-cloud-spanner", "google-cloud-videointelligence", "google-cloud-vision"),
    *("google-genai", "pg8000", "pymysql", "python-tds"),
)
# TensorBoard reads events without its server, more slowly.
_BUILDERS = ("libclang", "pip", "tensorboard-data-server")

# What the steps import, with all that these import in turn.
_IMPORTED = (
    *("tensorflow", "tensorflow_data_validation", "tensorflow_transform.beam", "tf_keras"),
    *("tensorflow_model_analysis", "tfx.components", "tfx.orchestration.local.local_dag_runner"),
    *("tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor", "kfp", "kfp.compiler"),
    *("cv2", "simplejpeg", "PIL.Image", "PIL.JpegImagePlugin", "PIL.PngImagePlugin"),
    *("sklearn.linear_model", "sklearn.metrics", "scipy.stats", "matplotlib.backends.backend_svg"),
    *("matplotlib.backends.backend_agg", "pyarrow.parquet", "gcsfs", "s3fs", "jinja2"),
    *("jsonargparse", "dacite", "docstring_parser", "rich.live", "h5py", "tensorboard.main"),
)

_LIST_FILES = """
import importlib, sys
for module in {modules!r}:
    importlib.import_module(module)
files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
print(*sorted(filter(None, files)), sep="\\n")
"""

# Below a package: its tests, and what compilers and type checkers read.
_FOLDERS = ("tests", "testdata", "include", "jupyterlab", "nbextensions")
_SUFFIXES = (".a", ".c", ".cpp", ".h", ".hpp", ".pxd", ".pyi", ".pyx", ".js.map")


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
    # Python takes an empty folder for a package.
    for folder in sorted(site.rglob("*"), reverse=True):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    _strip(site)
    _compile_used(site)
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


def _compile_used(site: Path) -> None:
    """Keep byte code of what the steps import, a third of it all; the rest is read once at most."""
    python = str(site.parents[2] / "bin" / "python")
    script = _LIST_FILES.format(modules=_IMPORTED)
    done = subprocess.run([python, "-c", script], check=True, stdout=subprocess.PIPE, text=True)
    for file in site.rglob("*.pyc"):
        file.unlink()
    for name in done.stdout.splitlines():
        # jsonargparse names a file that it does not have.
        if name.startswith(str(site)) and name.endswith(".py") and Path(name).is_file():
            mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
            py_compile.compile(name, invalidation_mode=mode, quiet=1)


def _strip(site: Path) -> None:
    """Remove symbols that the loader does not need, 200 MB, where there is a `strip`."""
    if shutil.which("strip") is None:
        raise SystemExit("strip is missing: install binutils")
    libraries = [file for file in site.rglob("*.so*") if file.is_file() and not file.is_symlink()]
    # auditwheel has changed the libraries in *.libs in a way that strip would destroy; NVIDIA's
    # carry code for GPUs.
    own = [
        str(file)
        for file in libraries
        if not file.parent.name.endswith(".libs") and "nvidia" not in file.parts
    ]
    subprocess.run(["strip", "--strip-unneeded", *own], check=True)


if __name__ == "__main__":
    main()

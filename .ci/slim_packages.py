"""Removes files that no step needs from site-packages: `slim_packages.py FOLDER`.

Makes the container image smaller; `.ci/check_slim` runs the pipeline on the rest. Then, in a folder
with our code, `slim_packages.py FOLDER --byte-code` writes byte code of what the steps import.
"""

import py_compile
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

# Why → distributions to remove. Others depend on them, but import them only for features that the
# pipeline does not use.
_DISTRIBUTIONS = {
    "notebooks and their servers": (
        *("argon2-cffi", "argon2-cffi-bindings", "babel", "bleach", "jedi", "jupyter-builder"),
        *("jupyter-events", "jupyter-lsp", "jupyter-server", "jupyter-server-terminals"),
        *("jupyterlab", "jupyterlab-pygments", "jupyterlab-server", "jupyterlab-widgets"),
        *("nbclient", "nbconvert", "nbformat", "notebook", "notebook-shim", "parso"),
        *("send2trash", "terminado", "widgetsnbextension"),
    ),
    "clients of Google's services that no component calls": (
        *("google-cloud-bigtable", "google-cloud-build", "google-cloud-dlp"),
        *("google-cloud-language", "google-cloud-recommendations-ai", "google-cloud-spanner"),
        *("google-cloud-videointelligence", "google-cloud-vision", "google-genai"),
    ),
    "for building extensions": ("libclang",),
    "a faster reader of events for TensorBoard's page": ("tensorboard-data-server",),
}
# Why → names of folders and endings of files to remove below any package.
_FOLDERS = {
    "tests and their data": ("tests", "testdata"),
    "headers": ("include",),
}
_FILES = {
    "sources and static libraries": (".a", ".c", ".cpp", ".h", ".hpp", ".pxd", ".pyx"),
    "types for checkers, maps for debuggers of pages": (".pyi", ".js.map"),
}
# TensorFlow's headers are beside the licenses of the libraries linked into it.
_LICENCE = re.compile(r"(?i)(licen[cs]e|copying|notice|copyright|authors)")

# Imports of the steps beside those of our modules; they must work, and their folders get byte code.
_IMPORTED = (
    *("tensorflow", "tensorflow_data_validation", "tensorflow_transform.beam", "tf_keras"),
    *("tensorflow_model_analysis", "tfx.components", "tfx.orchestration.local.local_dag_runner"),
    *("tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor", "kfp", "kfp.compiler"),
    *("apache_beam.runners.dataflow.dataflow_runner", "apache_beam.runners.worker.sdk_worker_main"),
    *("kubernetes", "cv2", "simplejpeg", "PIL.Image", "PIL.JpegImagePlugin", "PIL.PngImagePlugin"),
    *("sklearn.linear_model", "sklearn.metrics", "scipy.stats", "matplotlib.backends.backend_svg"),
    *("matplotlib.backends.backend_agg", "pyarrow.parquet", "gcsfs", "jinja2", "tifffile"),
    *("pydantic", "annotated_types", "rich.live", "h5py", "tensorboard.main"),
    "components.storage.s3_client",
    "pipeline_def.apps.serve.command",
)

_LIST_FILES = """
import importlib, sys
from pipeline_def.steps import STEPS
code = [module for row in STEPS.values() for module in row.code]
ours = ["pipeline_def.pipeline", "pipeline_def.kubeflow.step.entrypoint", *code]
for module in [*{modules!r}, *ours]:
    importlib.import_module(module)
files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
print(*sorted(filter(None, files)), sep="\\n")
"""


def main() -> None:
    """Write byte code, or remove files and strip libraries; print what each step saved."""
    site = Path(sys.argv[1])
    if "--byte-code" in sys.argv:
        before = _megabytes(site)
        _compile_used(site)
        print(f"{_megabytes(site) - before:+7,.0f} MB byte code of what the steps import")
        return
    for file in site.rglob("*.pyc"):
        file.unlink()
    print(f"{_megabytes(site):7,.0f} MB of packages")
    for reason, names in _DISTRIBUTIONS.items():
        saved = sum(_remove_distribution(site, name) for name in names)
        print(f"{-saved / 1e6:7,.0f} MB {reason}")
    for reason, names in _FOLDERS.items():
        saved = _remove([file for file in _files(site) if _is_below(site, file, names)])
        print(f"{-saved / 1e6:7,.0f} MB {reason}")
    for reason, ends in _FILES.items():
        saved = _remove([file for file in _files(site) if file.name.endswith(ends)])
        print(f"{-saved / 1e6:7,.0f} MB {reason}")
    _remove_empty_folders(site)
    before = _megabytes(site)
    _strip(site)
    print(f"{_megabytes(site) - before:7,.0f} MB symbols")
    print(f"{_megabytes(site):7,.0f} MB are left")


def _files(site: Path) -> list[Path]:
    return [file for file in site.rglob("*") if file.is_symlink() or file.is_file()]


def _is_below(site: Path, file: Path, names: tuple[str, ...]) -> bool:
    return not {*names}.isdisjoint(file.relative_to(site).parts[:-1])


def _megabytes(site: Path) -> float:
    return sum(file.lstat().st_size for file in _files(site)) / 1e6


def _remove(files: list[Path]) -> int:
    """Remove files other than licenses; return their size in bytes."""
    saved = 0
    for file in files:
        if not _LICENCE.search(file.name):
            saved += file.lstat().st_size
            file.unlink()
    return saved


def _remove_distribution(site: Path, name: str) -> int:
    """Remove a distribution; return its size in bytes."""
    saved = 0
    for distribution in metadata.distributions(name=name, path=[str(site)]):
        for file in distribution.files or ():
            path = Path(str(distribution.locate_file(file)))
            # Commands are outside of site-packages.
            if path.is_relative_to(site) and path.exists():
                saved += path.stat().st_size
                path.unlink()
    return saved


def _remove_empty_folders(site: Path) -> None:
    """Remove empty folders, which Python takes for packages."""
    for folder in sorted(site.rglob("*"), reverse=True):
        if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
            folder.rmdir()


def _compile_used(site: Path) -> None:
    """Write byte code for the folders of all modules that the steps import."""
    python = str(site.parents[2] / "bin" / "python")
    used = [file for file in imported_files(python) if file.is_relative_to(site)]
    # Those above them may be imported without leaving their files' names behind.
    folders = {folder for file in used for folder in file.parents if folder != site} - {
        *site.parents
    }
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    for file in sorted(file for folder in folders for file in folder.glob("*.py")):
        py_compile.compile(str(file), invalidation_mode=mode, quiet=1)


def imported_files(python: str) -> list[Path]:
    """Return the files of all modules that a step may import, with our code in this folder."""
    script = _LIST_FILES.format(modules=_IMPORTED)
    done = subprocess.run([python, "-c", script], check=True, stdout=subprocess.PIPE, text=True)
    return [Path(name) for name in done.stdout.splitlines()]


def _strip(site: Path) -> None:
    """Strip symbols that the loader does not need."""
    if shutil.which("strip") is None:
        raise SystemExit("strip is missing: install binutils")
    libraries = [file for file in site.rglob("*.so*") if file.is_file() and not file.is_symlink()]
    # strip would destroy libraries that auditwheel has changed (*.libs); NVIDIA's hold GPU code.
    own = [
        str(file)
        for file in libraries
        if not file.parent.name.endswith(".libs") and "nvidia" not in file.parts
    ]
    subprocess.run(["strip", "--strip-unneeded", *own], check=True)


if __name__ == "__main__":
    main()

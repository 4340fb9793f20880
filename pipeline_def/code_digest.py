"""Digest of the code behind each step: a cached result must not outlive the code that made it.

TFX keys its cache by the name of an executor or run_fn, not by its code. The digest covers every
file of ours that the step's modules import, directly or not, and the versions of all libraries. For
Tuner and Trainer it also covers the user's functions that options name.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.machinery
import importlib.metadata
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from components.contract.errors import ConfigurationError
from pipeline_def.steps import STEPS, TRAINER, TUNER

# Folder of the repository, or the one in which the wheel is installed.
_ROOT = Path(__file__).resolve().parents[__name__.count(".")]

_LOCK = "uv.lock"
# Fields of statements, of a handler and of a case that hold statements.
_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")

# In the wheel, it is one name.
_OURS = {module.partition(".")[0] for row in STEPS.values() for module in row.code}


def code_digest(step: str, build_fn: str | None = None, augmentation_fn: str | None = None) -> str:
    """Return 16 hexadecimal digits that change with the code of `step`.

    The functions of the user, `model.build_fn` and `augmentation.fn`, count for Tuner and Trainer
    only: ImageReport follows from their outputs.

    Raises:
        ConfigurationError: the module of a function does not exist.
    """
    digest = _digest(_ROOT, reach(STEPS[step].code), _libraries(_ROOT))
    for option, path in (("model.build_fn", build_fn), ("augmentation.fn", augmentation_fn)):
        if step in (TUNER.id, TRAINER.id) and path is not None:
            text = f"{digest} {_user_digest(path, option)}"
            digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return digest


def whole_digest() -> str:
    """Return 16 hexadecimal digits that change with the code of any step."""
    files = reach(module for row in STEPS.values() for module in row.code)
    return _digest(_ROOT, files, _libraries(_ROOT))


def program_digest(build_fn: str | None = None, augmentation_fn: str | None = None) -> str:
    """Return 16 hexadecimal digits that change whenever any `code_digest` may change.

    It covers all files of this program, the lock file and the names of all installed packages with
    their versions, and takes a tenth of the time.

    Raises:
        ConfigurationError: the module of a function does not exist.
    """
    digest = hashlib.sha256()
    here = Path(__file__).parent
    files = [path for folder in (here, here.parent / "components") for path in folder.rglob("*")]
    for file in sorted([*files, _ROOT / _LOCK]):
        if "__pycache__" not in file.parts and file.is_file():
            digest.update(str(file.relative_to(_ROOT)).encode() + b"\0" + file.read_bytes())
    places = (place or os.curdir for place in sys.path)
    folders = [place for place in places if os.path.isdir(place) and os.access(place, os.R_OK)]
    installed = {name for folder in folders for name in os.listdir(folder) if "-info" in name}
    digest.update(json.dumps(sorted(installed)).encode())
    for option, path in (("model.build_fn", build_fn), ("augmentation.fn", augmentation_fn)):
        digest.update(f" {path and _user_digest(path, option)}".encode())
    return digest.hexdigest()[:16]


def _digest(root: Path, files: Iterable[str], libraries: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(name.encode() + b"\0" + (root / name).read_bytes() + b"\0")
    for library in sorted(libraries):
        digest.update(f"{library}\n".encode())
    return digest.hexdigest()[:16]


@functools.cache
def _libraries(root: Path) -> tuple[str, ...]:
    """Return what changes with the versions of the libraries.

    That is the lock file, as a pipeline may be compiled on another machine than it runs on, and
    which of its two sets of versions this Python takes. An installed wheel has no lock file: its
    requirements count with their installed versions.
    """
    if (lock := root / _LOCK).exists():
        newer = sys.version_info >= (3, 12)
        return hashlib.sha256(lock.read_bytes()).hexdigest(), f"newer Python: {newer}"
    requirements = importlib.metadata.requires("tfx-image-pipeline") or ()
    names = {re.split(r"[^\w.-]", text, maxsplit=1)[0] for text in requirements}
    return tuple(f"{name}=={_version(name)}" for name in names)


def reach(entries: Iterable[str]) -> set[str]:
    """Walk the imports of our modules.

    Returns our files relative to the repository, including their packages' templates.
    """
    files, _ = _walk(_ROOT, entries, _OURS.__contains__)
    for package in {(_ROOT / file).parent for file in files}:
        files.update(str(path.relative_to(_ROOT)) for path in _data_files(package))
    return files


def _walk(
    root: Path, entries: Iterable[str], is_own: Callable[[str], bool]
) -> tuple[set[str], set[str]]:
    """Walk the imports of modules, including those within functions.

    Args:
        root: folder that the modules are imported from.
        entries: modules to start with.
        is_own: whether a top-level module counts by its files in `root`, not by its version.

    Returns:
        Files relative to `root`, and the top-level modules of libraries that these files import.
    """
    files: set[str] = set()
    libraries: set[str] = set()
    waiting, seen = list(entries), {""}
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        top = module.partition(".")[0]
        if not is_own(top):
            libraries.add(top)
        elif (path := _path(root, module)).is_file():
            files.add(str(path.relative_to(root)))
            waiting += [module.rpartition(".")[0], *_imports(root, module)]
    return files, libraries - sys.stdlib_module_names


def _data_files(folder: Path) -> Iterator[Path]:
    """Yield data files beside the modules of a package, and in its folders of data."""
    for path in folder.iterdir():
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            yield path
        # Byte code comes and goes while other processes import our modules.
        elif path.name != "__pycache__" and path.is_dir() and not (path / "__init__.py").exists():
            yield from _data_files(path)


def _path(root: Path, module: str) -> Path:
    path = root.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@functools.cache
def _imports(root: Path, module: str) -> tuple[str, ...]:
    """Return the names that a module imports; some are functions or classes, not modules."""
    path = _path(root, module)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return tuple(_names(ast.parse(path.read_bytes()), package.split(".")))


def _names(node: ast.AST, package: list[str]) -> Iterator[str]:
    """Yield the names that statements import, unless only a type checker sees them."""
    for child in (child for name in _BLOCKS for child in getattr(node, name, ())):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            above = package[: len(package) + 1 - child.level] if child.level else []
            parts = [*above, *([child.module] if child.module else [])]
            yield ".".join(parts)
            yield from (".".join([*parts, alias.name]) for alias in child.names)
        elif not _is_for_type_checkers(child):
            yield from _names(child, package)


def _is_for_type_checkers(node: ast.AST) -> bool:
    test = node.test if isinstance(node, ast.If) else None
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _user_digest(path: str, option: str) -> str:
    """Digest the module of a user's function, and what it imports from the same folder.

    If it is in an installed package, only that package's code counts; libraries count by version,
    those of this program as a part of every digest.
    """
    module = path.rpartition(".")[0]
    root = _user_root(path, option)

    def is_own(top: str) -> bool:
        if "site-packages" in root.parts:
            return top == module.partition(".")[0]
        return root.joinpath(top).is_dir() or _path(root, top).is_file()

    files, imported = _walk(root, [module], is_own)
    lock = (_ROOT / _LOCK).read_text() if (_ROOT / _LOCK).exists() else ""
    others = {name for name in imported if f'name = "{name.replace("_", "-")}"' not in lock}
    return _digest(root, files, {f"{name}=={_version(name)}" for name in others})


def _user_root(path: str, option: str) -> Path:
    """Find the folder from which a user's module is imported, without importing it."""
    top = path.partition(".")[0]
    # A run starts in the folder of the user's modules, which may not be on Python's path.
    spec = importlib.machinery.PathFinder.find_spec(top, [*sys.path, os.getcwd()])
    places = [*(spec.submodule_search_locations or [])] if spec else []
    place = places[0] if places else spec.origin if spec else None
    module = path.rpartition(".")[0]
    root = Path(place).resolve().parent if place else Path.cwd()
    if not _path(root, module).is_file() and not root.joinpath(*module.split(".")).is_dir():
        raise ConfigurationError(
            f"{option} is {path!r}: there is no module {module} in {Path.cwd()} or among "
            "the installed packages."
        )
    return root


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"

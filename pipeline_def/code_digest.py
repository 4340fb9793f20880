"""Digest of the code behind each step: a cached result must not outlive the code that made it.

TFX keys its cache by the name of an executor or run_fn, not by its code. The digest covers every
file of ours that the step's modules import, directly or not, and the versions of all libraries. For
Tuner and Trainer it also covers the user's functions that options name, with what they import.
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
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from components.contract.errors import ConfigurationError
from pipeline_def.steps import STEPS, TRAINER, TUNER

# Folder of the repository, or the one in which the wheel is installed.
_ROOT = Path(__file__).resolve().parents[__name__.count(".")]

_LOCK = "uv.lock"
# Fields of statements, of a handler and of a case that hold statements.
_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")

_INSTALLED = {"site-packages", "dist-packages"}
_STANDARD_LIBRARY = Path(os.__file__).parent

# In the wheel, it is one name.
_OURS = {module.partition(".")[0] for row in STEPS.values() for module in row.code}


def code_digest(step: str, build_fn: str | None = None, augmentation_fn: str | None = None) -> str:
    """Return 16 hexadecimal digits that change with the code of `step`.

    The functions of the user, `model.build_fn` and `augmentation.fn`, count for Tuner and Trainer
    only: ImageReport follows from their outputs.

    Raises:
        ConfigurationError: the module of a function does not exist.
    """
    digest = _digest_ours(reach(STEPS[step].code))
    for option, path in (("model.build_fn", build_fn), ("augmentation.fn", augmentation_fn)):
        if step in (TUNER.id, TRAINER.id) and path is not None:
            text = f"{digest} {_user_digest(path, option)}"
            digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return digest


def whole_digest() -> str:
    """Return 16 hexadecimal digits that change with the code of any step."""
    files = reach(module for row in STEPS.values() for module in row.code)
    return _digest_ours(files)


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


def forget_imports(build_fn: str | None, augmentation_fn: str | None) -> None:
    """Let Python import the user's functions again, as their code may have changed since.

    What is installed stays imported.
    """
    for option, path in (("model.build_fn", build_fn), ("augmentation.fn", augmentation_fn)):
        files = _walk_users(path, option)[0] if path else {}
        for name in (name for name, file in files.items() if not _is_installed(file)):
            sys.modules.pop(name, None)
            package, _, attribute = name.rpartition(".")
            # A folder without __init__.py stays imported, and would still hold the old module.
            vars(sys.modules.get(package, types.SimpleNamespace())).pop(attribute, None)


def _digest_ours(files: Iterable[str]) -> str:
    return _digest({name: _ROOT / name for name in files}, _libraries(_ROOT))


def _digest(files: Mapping[str, Path], libraries: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
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
    found, _ = _walk(entries, _find_ours)
    files = {str(path.relative_to(_ROOT)) for path in found.values()}
    for package in {(_ROOT / file).parent for file in files}:
        files.update(str(path.relative_to(_ROOT)) for path in _data_files(package))
    return files


def _walk(
    entries: Iterable[str], find: Callable[[str], Path | None]
) -> tuple[dict[str, Path], set[str]]:
    """Walk the imports of modules, including those within functions.

    Args:
        entries: modules to start with.
        find: returns the file of a module, or None if its content does not count.

    Returns:
        Module → its file, and the top-level modules of libraries that these files import.
    """
    files: dict[str, Path] = {}
    waiting, seen = list(entries), {""}
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        if path := find(module):
            files[module] = path
            package = module if path.name == "__init__.py" else module.rpartition(".")[0]
            source = path.read_bytes() if path.suffix == ".py" else b""
            waiting += [module.rpartition(".")[0], *_imports(source, package)]
    own, all_names = ({name.partition(".")[0] for name in names} for names in (files, seen))
    return files, all_names - own - sys.stdlib_module_names - {""}


def _data_files(folder: Path) -> Iterator[Path]:
    """Yield data files beside the modules of a package, and in its folders of data."""
    for path in folder.iterdir():
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            yield path
        # Byte code comes and goes while other processes import our modules.
        elif path.name != "__pycache__" and path.is_dir() and not (path / "__init__.py").exists():
            yield from _data_files(path)


def _find_ours(module: str) -> Path | None:
    top, *_ = parts = module.split(".")
    if top not in _OURS:
        return None
    path = _ROOT.joinpath(*parts)
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return path if path.is_file() else None


@functools.cache
def _imports(source: bytes, package: str) -> tuple[str, ...]:
    """Return the names that a module imports; some are functions or classes, not modules."""
    try:
        return tuple(_names(ast.parse(source), package.split(".")))
    except (SyntaxError, ValueError):
        return ()  # The import of the module will say more.


def _names(node: ast.AST, package: list[str]) -> Iterator[str]:
    """Yield the names that statements import, unless only a type checker sees them."""
    blocks = _BLOCKS[1:] if _is_for_type_checkers(node) else _BLOCKS
    for child in (child for name in blocks for child in getattr(node, name, ())):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            above = package[: len(package) + 1 - child.level] if child.level else []
            parts = [*above, *([child.module] if child.module else [])]
            yield ".".join(parts)
            yield from (".".join([*parts, alias.name]) for alias in child.names)
        else:
            yield from _names(child, package)


def _is_for_type_checkers(node: ast.AST) -> bool:
    test = node.test if isinstance(node, ast.If) else None
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _user_digest(path: str, option: str) -> str:
    """Digest the module of a user's function, and what it imports.

    Libraries count by version, those of this program as a part of every digest.
    """
    files, imported = _walk_users(path, option)
    lock = (_ROOT / _LOCK).read_text() if (_ROOT / _LOCK).exists() else ""
    others = {name for name in imported if f'name = "{name.replace("_", "-")}"' not in lock}
    return _digest(files, {f"{name}=={_version(name)}" for name in others})


def _walk_users(path: str, option: str) -> tuple[dict[str, Path], set[str]]:
    """Walk the imports of a user's function, without importing it; return what `_walk` does.

    The content counts of its own package, and of any other module that is not installed.

    Raises:
        ConfigurationError: the module does not exist.
    """
    module = path.rpartition(".")[0]
    own = module.partition(".")[0]

    def find(name: str) -> Path | None:
        top = name.partition(".")[0]
        file = None if top in _OURS and top != own else _find_module(name)
        return file if file and (top == own or not _is_installed(file)) else None

    importlib.invalidate_caches()
    files, libraries = _walk([module], find)
    if module not in files:
        raise ConfigurationError(
            f"{option} is {path!r}: there is no module {module} in {Path.cwd()} or among "
            "the installed packages."
        )
    return files, libraries


def _find_module(module: str) -> Path | None:
    """Return the file that Python would import a module from; None if there is none."""
    top, *names = module.split(".")
    # Editable installs may add a finder. A run starts in the folder of the user's modules, which
    # may not be on Python's path.
    specs = (finder.find_spec(top, None) for finder in sys.meta_path)
    find = importlib.machinery.PathFinder.find_spec
    spec = next(filter(None, specs), None) or find(top, [os.getcwd()])
    for name in names:
        # The whole name of a module below a folder without __init__.py would need its import.
        spec = find(name, [*(spec.submodule_search_locations or ())]) if spec else None
    return Path(spec.origin).absolute() if spec and spec.has_location and spec.origin else None


def _is_installed(file: Path) -> bool:
    """Return whether a file belongs to an installed package or to the standard library."""
    return not _INSTALLED.isdisjoint(file.parts) or file.is_relative_to(_STANDARD_LIBRARY)


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"

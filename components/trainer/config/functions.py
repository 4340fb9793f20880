"""Functions of the user that options name, such as `model.build_fn`."""

import importlib
import os
import re
import sys
from collections.abc import Callable
from typing import Any, cast

from components.contract.configuration import require
from components.contract.errors import ConfigurationError
from components.storage.folder import reason_of

_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


def check_path(option: str, path: str | None) -> None:
    """Raise `ConfigurationError` unless `path` is a dotted path or None."""
    require(
        path is None or bool(_FUNCTION.fullmatch(path)),
        f"{option} is {path!r}: it must be module.function.",
    )


def import_function(option: str, path: str) -> Callable[..., Any]:
    """Import a function, also from the folder that the run was started in.

    Raises:
        ConfigurationError: there is no such function, or its module fails.
    """
    module, _, name = path.rpartition(".")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        function: Any = getattr(importlib.import_module(module), name, None)
    except Exception as error:  # The user's code may raise anything.
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            reason = f"there is no module {error.name} in {os.getcwd()} or among the installed ones"
        else:
            reason = f"importing {module} failed with {describe_error(error)}"
        raise mistake(option, path, reason) from error
    if not callable(function):
        raise mistake(option, path, f"module {module} has no function {name}")
    return cast("Callable[..., Any]", function)


def mistake(option: str, path: str, reason: str) -> ConfigurationError:
    """Return an error about the function that an option names."""
    return ConfigurationError(f"{option} is {path!r}: {reason}.")


def describe_error(error: Exception) -> str:
    """Return the class and the first line of an error."""
    return f"{type(error).__name__}: {reason_of(error)}"

"""Imports the libraries of a step without parts that no step uses, which halves its start-up.

`import tensorflow` imports Keras 3, and with it matplotlib, rich and IPython; ours is tf_keras.
Beam imports BigQuery's client, `tfx.components` every component, `tfx.types` model analysis, `kfp`
a client of Kubernetes. Each works without these modules, or imports them when they are used.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Iterator

# Library → modules that it tries to import and no step uses.
_UNUSED = {
    "tensorflow": ("keras.src.optimizers", "tf_keras.src.optimizers", "googleapiclient"),
    "apache_beam": ("apache_beam.io.gcp.bigquery",),
}
# Package whose own code imports all its modules → names that others read from it only to annotate
# types, with the modules that define them.
_LAZY: dict[str, dict[str, str]] = {
    "kfp": {},
    "tensorflow_model_analysis": {"EvalConfig": "proto.config_pb2"},
    "tfx.components": {},
}

_EVALUATOR = "tfx.components.evaluator.executor"


def import_libraries() -> None:
    """Import TensorFlow and Beam, and make the modules of TFX importable one by one."""
    # Without it, model analysis imports Keras 3 to find out which Keras tf.keras is.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    for name in _LAZY:
        if name not in sys.modules:
            sys.modules[name] = _LazyPackage(name)
    for name, unused in _UNUSED.items():
        with _without(unused):
            importlib.import_module(name)


def stub_evaluator_module() -> None:
    """Keep TFX's entrypoint from importing model analysis only for an isinstance check.

    The Evaluator's own executor has imported it by now.
    """
    if _EVALUATOR not in sys.modules:
        stand_in = types.ModuleType(_EVALUATOR)
        vars(stand_in)["Executor"] = type("Executor", (), {})
        sys.modules[_EVALUATOR] = stand_in


@contextlib.contextmanager
def _without(names: tuple[str, ...]) -> Iterator[None]:
    """Let the import of these modules fail, unless they are imported already."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)


class _LazyPackage(types.ModuleType):
    """A package whose own code runs only when a name that is not one of its modules is read."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        spec = importlib.util.find_spec(name)
        assert spec
        assert spec.loader
        self.__spec__, self.__loader__ = spec, spec.loader
        self.__file__, self.__package__ = spec.origin, name
        self.__path__ = list(spec.submodule_search_locations or ())

    def __getattr__(self, name: str) -> object:
        # Other dunder names are read to inspect the kind of object.
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        if place := _LAZY[self.__name__].get(name):
            return getattr(importlib.import_module(f"{self.__name__}.{place}"), name)
        try:
            return importlib.import_module(f"{self.__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{self.__name__}.{name}":
                raise
        # From now on, what the package defines is an attribute.
        self.__class__ = types.ModuleType  # type: ignore[assignment]
        self.__spec__.loader.exec_module(self)  # type: ignore[union-attr]
        return getattr(self, name)

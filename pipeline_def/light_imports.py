"""Imports the libraries of a step without what no step uses: half of the time until it works.

`import tensorflow` imports Keras 3, and with it matplotlib, rich and IPython; ours is tf_keras.
Beam imports BigQuery's client, `tfx.components` every component, `tfx.types` model analysis, `kfp`
a client of Kubernetes. Each goes on without, or finds it when anyone asks for it later.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Iterator

# Library → what it tries to import, and no step uses.
_UNUSED = {
    "tensorflow": ("keras.src.optimizers", "tf_keras.src.optimizers", "googleapiclient"),
    "apache_beam": ("apache_beam.io.gcp.bigquery",),
}
# Packages whose own code imports all their modules → what is asked of them for a type's name only,
# and the module that has it.
_LAZY: dict[str, dict[str, str]] = {
    "kfp": {},
    "tensorflow_model_analysis": {"EvalConfig": "proto.config_pb2"},
    "tfx.components": {},
}

_EVALUATOR = "tfx.components.evaluator.executor"


def import_libraries() -> None:
    """Import TensorFlow and Beam, and make the modules of TFX importable one by one."""
    # Without it, model analysis imports Keras 3 to find out that tf.keras is not ours.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    for name in _LAZY:
        if name not in sys.modules:
            sys.modules[name] = _LazyPackage(name)
    for name, unused in _UNUSED.items():
        with _without(unused):
            importlib.import_module(name)


def leave_out_the_evaluator() -> None:
    """Keep TFX's entrypoint from importing model analysis only to ask what the executor is.

    An executor that is the Evaluator's has imported it by now.
    """
    if _EVALUATOR not in sys.modules:
        stand_in = types.ModuleType(_EVALUATOR)
        vars(stand_in)["Executor"] = type("Executor", (), {})
        sys.modules[_EVALUATOR] = stand_in


@contextlib.contextmanager
def _without(names: tuple[str, ...]) -> Iterator[None]:
    """Let the import of these modules fail, unless they are there already."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)


class _LazyPackage(types.ModuleType):
    """A package whose own code runs only when anyone asks for what is no module of it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        spec = importlib.util.find_spec(name)
        assert spec
        assert spec.loader
        self.__spec__, self.__loader__ = spec, spec.loader
        self.__file__, self.__package__ = spec.origin, name
        self.__path__ = list(spec.submodule_search_locations or ())

    def __getattr__(self, name: str) -> object:
        # Whoever asks for any other such name is looking at what kind of object this is.
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        if place := _LAZY[self.__name__].get(name):
            return getattr(importlib.import_module(f"{self.__name__}.{place}"), name)
        try:
            return importlib.import_module(f"{self.__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{self.__name__}.{name}":
                raise
        # What it defines is an attribute from now on.
        self.__class__ = types.ModuleType  # type: ignore[assignment]
        self.__spec__.loader.exec_module(self)  # type: ignore[union-attr]
        return getattr(self, name)

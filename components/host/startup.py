"""Start and end a process quickly: import libraries without parts that no step uses.

`import tensorflow` imports Keras 3, and with it matplotlib, rich and IPython; ours is tf_keras.
Beam imports BigQuery's client, `tfx.components` every component, `tfx.types` model analysis, `kfp`
a client of Kubernetes. Each works without these modules, or imports them when they are used.
"""

import atexit
import contextlib
import gc
import importlib
import importlib.util
import io
import logging
import os
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import NoReturn

import psutil

from components.contract.errors import UserError
from components.contract.printable import make_printable
from components.host.machine import choose_allocator

# Library → modules that it tries to import and no step uses.
_UNUSED = {
    "tensorflow": ("keras.src.optimizers", "tf_keras.src.optimizers", "googleapiclient"),
    "apache_beam": ("apache_beam.io.gcp.bigquery",),
}
# What Beam needs for object stores, which a local run does not reach through it.
_STORES = [
    f"apache_beam.io.{name}filesystem" for name in ("aws.s3", "azure.blobstorage", "gcp.gcs")
]
# Packages whose own code imports all their modules.
_LAZY = (
    *("IPython", "docker", "kfp", "scipy.stats", "tensorflow_model_analysis"),
    *("tensorflow_model_analysis.metrics", "tfx.components"),
)
# Name that is read from such a package only to annotate types → the module that defines it.
_TYPES = {"tensorflow_model_analysis.EvalConfig": "tensorflow_model_analysis.proto.config_pb2"}


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """Import TensorFlow and TFX within this context, without modules that no step uses."""
    # Imports take three times as long without byte code, which some shells turn off.
    sys.dont_write_bytecode = False
    # Imports create millions of objects and no garbage.
    gc.disable()
    try:
        with _without(("apitools", *_STORES)):
            import_libraries()
        yield
    finally:
        gc.freeze()
        gc.enable()


def import_libraries() -> None:
    """Import TensorFlow and Beam, and make the modules of TFX importable one by one."""
    # Without it, model analysis imports Keras 3 to find out which Keras tf.keras is.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    choose_allocator()
    for name in _LAZY:
        if name not in sys.modules:
            sys.modules[name] = _LazyPackage(name)
    for name, unused in _UNUSED.items():
        with _without(unused):
            importlib.import_module(name)


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
        if place := _TYPES.get(f"{self.__name__}.{name}"):
            return getattr(importlib.import_module(place), name)
        try:
            return importlib.import_module(f"{self.__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{self.__name__}.{name}":
                raise
        # From now on, what the package defines is an attribute.
        self.__class__ = types.ModuleType  # type: ignore[assignment]
        self.__spec__.loader.exec_module(self)  # type: ignore[union-attr]
        return getattr(self, name)


def seconds_since_start() -> float:
    """Return the seconds since this process began."""
    # Linux counts from the start of the machine, which psutil knows only to the second.
    started = psutil.Process().create_time() - psutil.boot_time()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - float(started)


def exit_status(command: Callable[[], int], *, program: str, stopped: str) -> int:
    """Run a command of a runner and return its status; print the message of a `UserError`.

    The status is 130 after Ctrl-C, when `stopped` is printed, and 141 after a broken pipe, as with
    `| head`. `program` is printed before a message.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # File names can contain any bytes, and some terminals print ASCII only.
            stream.reconfigure(errors="backslashreplace")
    try:
        return command()
    except UserError as error:
        print(make_printable(f"{program}: error: {error}"), file=sys.stderr)
        return error.exit_status
    except BrokenPipeError:
        # The interpreter flushes the buffer on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print(f"{program}: {stopped}", file=sys.stderr)
        return 130


def end_process(status: int) -> NoReturn:
    """Run exit handlers, flush output and exit, without the 2 s of tearing down TensorFlow."""
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        # The reader may be gone.
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)

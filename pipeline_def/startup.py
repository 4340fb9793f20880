"""Makes starting and ending a process that imports TensorFlow and TFX faster.

For processes of this pipeline only: what is left out is what no step of it uses. A third of the
time of importing goes into it otherwise.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import os
import sys
import time
import types
from collections.abc import Iterator
from typing import NoReturn

import psutil

# Those who import them go on without: BigQuery's progress bars in notebooks, and Beam's sources.
_DISPENSABLE = (
    "tqdm.notebook",
    "bson",
    "pymongo",
    "google.cloud.pubsub",
    "google.cloud.bigquery_storage",
    "google.cloud.bigquery_storage_v1",
)
# TFX and TFMA import these for everybody, and with them Kubernetes' client, KerasTuner and NLTK.
_UNUSED = {
    "tfx.components.infra_validator.component": "InfraValidator",
    "tfx.components.tuner.component": "Tuner",
    "tensorflow_model_analysis.metrics.rouge": "Rouge",
}


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """Import TensorFlow and TFX within this context, without what no step uses.

    Afterwards whoever wants one of the packages left out, such as a network of the user's own, can
    import it; only `tfx.components.InfraValidator`, `Tuner` and TFMA's metric of texts
    stay out.
    """
    # tf_keras in place of Keras 3, which nothing here uses; TensorFlow reads it on import.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    # Without byte code importing takes thrice as long; some shells keep Python from writing it.
    sys.dont_write_bytecode = False
    left_out = [name for name in _DISPENSABLE if name not in sys.modules]
    sys.modules.update(dict.fromkeys(left_out))  # type: ignore[arg-type]
    for name, attribute in _UNUSED.items():
        sys.modules.setdefault(name, _module_with(name, attribute))
    # Modules are no garbage, and there are millions of objects to look through.
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        for name in left_out:
            if sys.modules[name] is None:
                del sys.modules[name]


def seconds_since_start() -> float:
    """Return the seconds since the user's command began: that of `uv run`, where it is one."""
    process = psutil.Process()
    with contextlib.suppress(psutil.Error):
        if (parent := process.parent()) and parent.name() == "uv":
            process = parent
    return time.time() - float(process.create_time())


def end_process(status: int) -> NoReturn:
    """End this process without taking TensorFlow and its threads apart, which takes 2 s.

    What is to be done at the end is done, and what was printed is written.

    Args:
        status: to exit with.
    """
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        # Nobody may be reading any more.
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def _module_with(name: str, attribute: str) -> types.ModuleType:
    module = types.ModuleType(name)
    setattr(module, attribute, None)
    return module

"""Runs Python modules in forks of itself, after importing the libraries that all steps use.

None of our own code is imported before the fork. Run by warm.py, which writes a plan's path a line
and reads the exit status.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

_LIBRARIES = (
    "tfx.components",
    "tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor",
    "tensorflow_model_analysis",
    "tensorflow_transform",
    "tf_keras",
    "sklearn.linear_model",
)
_NEW_MOUNTS, _NEW_PROCESSES = 0x20000, 0x20000000
_PRIVATE, _RECURSIVE = 1 << 18, 16384


def main() -> None:
    """Import the libraries, then run one plan after the other."""
    for name in _LIBRARIES:
        importlib.import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _run(json.loads(Path(line.strip()).read_text()))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=_answers, flush=True)


def _run(plan: dict[str, Any]) -> None:
    """Run the plan in this process, which then ends."""
    log = os.open(plan["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for stream, number in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(stream, number)
    if "root" not in plan:
        os.chdir(plan["folder"])
        _start(plan)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_MOUNTS | _NEW_PROCESSES):
        raise OSError(ctypes.get_errno(), "unshare")
    libc.mount(b"none", b"/", None, _PRIVATE | _RECURSIVE, None)
    # The next process is the first of the new namespace.
    first = os.fork()
    if not first:
        os._exit(_isolate().main(plan, _start))
    os._exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]))


def _isolate() -> Any:
    path = Path(__file__).with_name("isolate.py")
    spec = importlib.util.spec_from_file_location("isolate", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _start(plan: dict[str, Any]) -> None:
    """Do what `python -m module arguments` does; end without the interpreter's own two seconds."""
    os.environ.clear()
    os.environ.update(plan["env"])
    _, _, module, *arguments = plan["command"]
    sys.argv = [module, *arguments]
    sys.path.insert(0, plan["folder"])
    status: Any = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code or 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status if isinstance(status, int) else 1)


if __name__ == "__main__":
    # What libraries print must not be taken for an answer.
    _answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main()

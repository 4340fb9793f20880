"""Runs Python modules in forks of itself, after importing the libraries that all steps use.

None of our own code is imported before the fork. `vertex_job.py` writes a plan a line and reads
the exit status.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
from typing import Any

_LIBRARIES = (
    "tfx.components",
    "tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor",
    "tensorflow_model_analysis",
    "tensorflow_transform",
    "tf_keras",
    "sklearn.linear_model",
)


def main() -> None:
    """Import the libraries, then run one plan after the other."""
    # What libraries print must not be taken for a status.
    statuses = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in _LIBRARIES:
        importlib.import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _run(json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=statuses, flush=True)


def _run(plan: dict[str, Any]) -> None:
    """Do what `python -m module arguments` does; end without the interpreter's own two seconds."""
    log = os.open(plan["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for stream, number in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(stream, number)
    os.chdir(plan["folder"])
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
    main()

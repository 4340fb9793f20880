"""Compile the pipeline for Kubeflow and run it there: `uv run kfp_runner.py --help`."""

import functools
import logging
import os
import sys
import warnings
from collections.abc import Sequence

from components.host.stopping import require_libraries, stop_with


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the first argument names; return the exit status."""
    # Not at the top: Ctrl-C must work from the first import on.
    from components.host.startup import exit_status
    from pipeline_def.kubeflow.commands import COMMANDS, overview

    arguments = list(sys.argv[1:] if argv is None else argv)
    # Libraries warn about GPUs and Python versions, which do not matter here.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.getLogger().setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning)
    command = overview
    if arguments and arguments[0] in COMMANDS:
        command = COMMANDS[arguments.pop(0)]
    return exit_status(
        functools.partial(command, arguments), program="kfp_runner.py", stopped="stopped."
    )


def run_program() -> None:
    """Run as a program, which ends here."""
    stop_with("kfp_runner.py: stopped.")
    require_libraries("kfp_runner.py")
    sys.exit(main())


if __name__ == "__main__":
    run_program()

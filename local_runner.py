"""Runs the whole image pipeline on this machine: `uv run local_runner.py --help`."""

import sys
from collections.abc import Sequence

from components.host.stopping import require_libraries, stop_with

_STOPPED = "stopped; finished steps are kept."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the pipeline, or the command that the first argument names; return the exit status."""
    # Imported here, so that Ctrl-C works from the first import on.
    from components.host.startup import exit_status
    from pipeline_def.commands import choose_command

    arguments = sys.argv[1:] if argv is None else argv

    def run() -> int:
        command, rest = choose_command(arguments)
        return command(rest)

    return exit_status(run, program="local_runner.py", stopped=_STOPPED)


def run_program() -> None:
    """Run as a program, which ends here."""
    stop_with(f"local_runner.py: {_STOPPED}")
    require_libraries("local_runner.py")
    status = main()
    from components.host.startup import end_process

    end_process(status)


if __name__ == "__main__":
    run_program()

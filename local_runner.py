"""Runs the whole image pipeline on this machine: `uv run local_runner.py --help`.

In a notebook:

    from local_runner import fit
    model = fit("photos", "output/photos", **{"training.epochs": 5})
    model.report, model.predict("new/")
"""

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True)
class Fit:
    """What a run has left."""

    output: str
    summary: dict[str, Any]
    """The content of `summary.json`."""

    @property
    def report(self) -> str:
        """Path of the report."""
        return str(self.summary["paths"]["report"])

    @property
    def model(self) -> str | None:
        """Folder of the pushed SavedModel; None if the model is not blessed."""
        return self.summary["pushed_model"]  # type: ignore[no-any-return]

    def predict(self, *files: str | os.PathLike[str]) -> list[dict[str, Any]]:
        """Return a row for each file, also below folders, with the model even if it is not blessed.

        Rows are those of `predict --to TABLE`.
        """
        which = [] if self.model else ["--unblessed"]
        with tempfile.TemporaryDirectory() as folder:
            table = os.path.join(folder, "table.jsonl")
            places = ["--output", self.output, "--to", table]
            _require(["predict", *map(str, files), *places, *which])
            with open(table, encoding="utf-8") as rows:
                return [json.loads(row) for row in rows]


def fit(folder: str | os.PathLike[str], output: str | os.PathLike[str], **options: Any) -> Fit:
    """Run the pipeline on a folder of images, as `local_runner.py --data FOLDER --output OUTPUT`.

    Args:
        folder: of the images; a path or URL.
        output: folder for the results, on disk.
        options: the options of the command line, such as `**{"training.epochs": 5}`.

    Raises:
        RuntimeError: the run failed; what it printed says why.
    """
    given = [f"--{name}={value}" for name, value in options.items()]
    _require(["run", "--data", str(folder), "--output", str(output), *given])
    with open(os.path.join(output, "summary.json"), encoding="utf-8") as file:
        return Fit(str(output), json.load(file))


def _require(arguments: Sequence[str]) -> None:
    if status := main(arguments):
        raise RuntimeError(f"local_runner.py {arguments[0]} ended with status {status}.")


def run_program() -> None:
    """Run as a program, which ends here."""
    stop_with(f"local_runner.py: {_STOPPED}")
    require_libraries("local_runner.py")
    status = main()
    from components.host.startup import end_process

    end_process(status)


if __name__ == "__main__":
    run_program()

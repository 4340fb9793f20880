"""An undisturbed run, to compare all others with."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline_def.runs.record import read_records
from tests.faults.outputs import Names, Result, count_running, name_live, read_result
from tests.faults.programs import Program
from tests.pictures import write_folder

# The smallest useful run.
OPTIONS = ["--transform.size=16", "--model.name=cnn", "--training.epochs=2", "--training.folds=0"]


@dataclass(frozen=True)
class Undisturbed:
    data: Path
    result: Result
    names: Names
    seconds: dict[str, float]
    """Step → its seconds."""

    def arguments(self, output: Path) -> list[str]:
        """Return the command line of the same run into another folder."""
        return ["--data", str(self.data), "--output", str(output), *OPTIONS]


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    data, output = write_folder(folder / "images", each=40), folder / "out"
    program = Program(["--data", str(data), "--output", str(output), *OPTIONS], folder)
    assert program.wait() == 0, program.err
    assert count_running(output) == 0
    steps = read_records(str(output))[-1].steps
    return Undisturbed(
        data=data,
        result=read_result(output),
        names=name_live(output),
        seconds={name: step.seconds or 0.0 for name, step in steps.items()},
    )

"""Where everything lies below the output folder."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """Paths below `output`."""

    output: str

    @property
    def lock(self) -> str:
        """The file whose lock a run holds while it writes."""
        return os.path.join(self.output, ".lock")

    @property
    def artifacts(self) -> str:
        """What every node wrote, as `<node>/<output>/<execution>`."""
        return os.path.join(self.output, "artifacts")

    @property
    def files(self) -> str:
        """Which files each artifact has, a line of JSON for each."""
        return os.path.join(self.output, "artifacts", "files.jsonl")

    @property
    def metadata(self) -> str:
        """The ML Metadata store, an SQLite file."""
        return os.path.join(self.output, "metadata.sqlite")

    @property
    def runs(self) -> str:
        """The records of all runs, a folder each."""
        return os.path.join(self.output, "runs")

    def record(self, run_id: str) -> str:
        """Return the path of the record of a run, JSON."""
        return os.path.join(self.runs, run_id, "run.json")

    @property
    def pushed(self) -> str:
        """Blessed models, a folder per version, as TensorFlow Serving wants them."""
        return os.path.join(self.output, "pushed")

    @property
    def statistics(self) -> str:
        """Statistics of the examples of earlier runs, a folder each; the next run is compared."""
        return os.path.join(self.output, "statistics")

    @property
    def listings(self) -> str:
        """What the images of the last runs were, a file each, as ImageExampleGen reads them."""
        return os.path.join(self.output, "listings")

    @property
    def checkpoints(self) -> str:
        """Checkpoints of interrupted trainings, a folder each."""
        return os.path.join(self.output, "checkpoints")

    @property
    def sample(self) -> str:
        """The built-in sample, when it is used."""
        return os.path.join(self.output, "sample")

    @property
    def schema(self) -> str:
        """What `local_runner.py schema` writes, for a person to edit."""
        return os.path.join(self.output, "schema.pbtxt")

    @property
    def summary(self) -> str:
        """What the last run gave, as JSON."""
        return os.path.join(self.output, "summary.json")

    @property
    def report(self) -> str:
        """The page of the last run, a copy of ImageReport's."""
        return os.path.join(self.output, "report.html")

    @property
    def comparison(self) -> str:
        """The page of two runs, as `local_runner.py runs --compare` wrote it last."""
        return os.path.join(self.output, "comparison.html")

    @property
    def logs(self) -> str:
        """Everything that TFX and its libraries logged, a file per run."""
        return os.path.join(self.output, "logs")

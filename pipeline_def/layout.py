"""Paths of everything below the output folder."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """Paths below `output`."""

    output: str

    @property
    def lock(self) -> str:
        """File that a run locks while it writes."""
        return os.path.join(self.output, ".lock")

    @property
    def artifacts(self) -> str:
        """Artifacts of every step, as `<step>/<output>/<execution>`."""
        return os.path.join(self.output, "artifacts")

    @property
    def files(self) -> str:
        """List of the files of each artifact, one line of JSON per artifact."""
        return os.path.join(self.output, "artifacts", "files.jsonl")

    @property
    def metadata(self) -> str:
        """ML Metadata store, an SQLite file."""
        return os.path.join(self.output, "metadata.sqlite")

    @property
    def runs(self) -> str:
        """Records of all runs, a folder each."""
        return os.path.join(self.output, "runs")

    def record(self, run_id: str) -> str:
        """Return the path of a run's record, JSON."""
        return os.path.join(self.runs, run_id, "run.json")

    @property
    def pushed(self) -> str:
        """Pushed models, a folder per version, as TensorFlow Serving expects them."""
        return os.path.join(self.output, "pushed")

    @property
    def statistics(self) -> str:
        """Statistics of earlier runs, a folder each; the next run is compared with them."""
        return os.path.join(self.output, "statistics")

    @property
    def listings(self) -> str:
        """Listings of the images of the last runs, a file each, which ImageExampleGen reads."""
        return os.path.join(self.output, "listings")

    @property
    def checkpoints(self) -> str:
        """Checkpoints of interrupted training, a folder each."""
        return os.path.join(self.output, "checkpoints")

    @property
    def sample(self) -> str:
        """Images of the built-in sample, if it is used."""
        return os.path.join(self.output, "sample")

    @property
    def schema(self) -> str:
        """Schema that `local_runner.py schema` writes for editing."""
        return os.path.join(self.output, "schema.pbtxt")

    @property
    def summary(self) -> str:
        """Results of the last run, JSON."""
        return os.path.join(self.output, "summary.json")

    @property
    def report(self) -> str:
        """Report on the model in use, a copy of ImageReport's page."""
        return os.path.join(self.output, "report.html")

    @property
    def refused_report(self) -> str:
        """Report of the last run whose model did not replace the one in use."""
        return os.path.join(self.output, "report-not-blessed.html")

    @property
    def comparison(self) -> str:
        """Comparison that `local_runner.py runs --compare` wrote last."""
        return os.path.join(self.output, "comparison.html")

    @property
    def logs(self) -> str:
        """Logs of TFX and its libraries, a file per run."""
        return os.path.join(self.output, "logs")

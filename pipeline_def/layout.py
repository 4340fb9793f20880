"""Paths of everything below the output folder."""

import os
from pathlib import Path

from components.host.lock import LOCK_FILE


def state_folder() -> Path:
    """Return the folder for what must outlive a command and belongs to no output."""
    # Relative paths are ignored, as the XDG Base Directory Specification says.
    named = Path(os.environ.get("XDG_STATE_HOME", ""))
    root = named if named.is_absolute() else Path("~/.local/state").expanduser()
    return root / "tfx-image-pipeline"


class Layout:
    """Paths below the folder `output`."""

    def __init__(self, output: str) -> None:
        """Join the names of all files and folders with `output`, a path or URL."""
        self.output = output

        self.lock = os.path.join(output, LOCK_FILE)
        """File that a run locks while it writes."""

        self.artifacts = os.path.join(output, "artifacts")
        """Artifacts of every step, as `<step>/<output>/<execution>`."""

        self.files = os.path.join(output, "artifacts", "files.jsonl")
        """List of the files of each artifact, one line of JSON per artifact."""

        self.metadata = os.path.join(output, "metadata.sqlite")
        """ML Metadata store, an SQLite file."""

        self.runs = os.path.join(output, "runs")
        """Records of all runs, a folder each."""

        self.pushed = os.path.join(output, "pushed")
        """Pushed models, a folder per version, as TensorFlow Serving expects them."""

        self.statistics = os.path.join(output, "statistics")
        """Statistics of earlier runs, a folder each; the next run is compared with them."""

        self.listings = os.path.join(output, "listings")
        """Listings of the images of the last runs, a file each, which ImageExampleGen reads."""

        self.checkpoints = os.path.join(output, "checkpoints")
        """Checkpoints of interrupted training, a folder each."""

        self.sample = os.path.join(output, "sample")
        """Images of the built-in sample, if it is used."""

        self.corrections = os.path.join(output, "corrections.csv")
        """Decisions about single images, which `local_runner.py review` writes."""

        self.summary = os.path.join(output, "summary.json")
        """Results of the last run, JSON."""

        self.report = os.path.join(output, "report.html")
        """Report on the current model, a copy of ImageReport's page."""

        self.refused_report = os.path.join(output, "report-not-blessed.html")
        """Report of the last run whose model did not replace the one in use."""

        self.comparison = os.path.join(output, "comparison.html")
        """Comparison that `local_runner.py runs --compare` wrote last."""

        self.logs = os.path.join(output, "logs")
        """Logs of TFX and its libraries, a file per run."""

    def record(self, run_id: str) -> str:
        """Return the path of a run's record, JSON."""
        return os.path.join(self.runs, run_id, "run.json")

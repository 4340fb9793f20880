"""Images and models in the cluster's own object store."""

import json
import tempfile
from dataclasses import dataclass
from typing import Any

from components.storage.object_store import open_store
from e2e.cluster import Failure
from pipeline_def.kubeflow.specification import pod_of
from pipeline_def.kubeflow.step_interface import DEFAULT_ROOT
from pipeline_def.local.preparation import write_digits
from pipeline_def.steps import REPORT


@dataclass(frozen=True)
class Store:
    """The pipeline root; for Kubeflow's own bucket, environment variables say where it is."""

    pipeline: str
    """Name of the pipeline whose outputs are read."""
    url: str = DEFAULT_ROOT

    @property
    def data(self) -> str:
        """URL of the images."""
        return f"{self.url}/e2e/digits"

    @property
    def root(self) -> str:
        """Folder of the pipeline's outputs."""
        return f"{open_store(self.url)[1]}/{self.pipeline}"

    def put_digits(self) -> int:
        """Upload the digits; return how many there are."""
        fs, path = open_store(self.data)
        with tempfile.TemporaryDirectory() as folder:
            images = write_digits(folder)
            # A forwarded port takes few connections at once.
            fs.put(f"{folder}/", f"{path}/", recursive=True, batch_size=16)
        return images

    def change_image(self) -> None:
        """Replace an image by another one."""
        fs, path = open_store(self.data)
        first, second = sorted(fs.ls(f"{path}/0"))[:2]
        fs.pipe_file(first, fs.cat_file(second))

    def break_images(self, count: int) -> None:
        """Add files that are not images."""
        fs, path = open_store(self.data)
        for number in range(count):
            fs.pipe_file(f"{path}/0/broken-{number}.png", b"no image")

    def mend_images(self) -> None:
        """Remove the files of `break_images`."""
        fs, path = open_store(self.data)
        for file in fs.glob(f"{path}/0/broken-*.png"):
            fs.rm_file(file)

    def pushed_versions(self) -> list[str]:
        """Return the versions of the pushed models, the oldest first."""
        fs, _ = open_store(self.data)
        graphs = fs.glob(f"{self.root}/pushed/*/saved_model.pb")
        return sorted((file.split("/")[-2] for file in graphs), key=int)

    def read_metrics(self, run_id: str) -> dict[str, Any]:
        """Return a run's metrics; on Kubeflow the artifact `metrics` is a file, not a folder."""
        fs, _ = open_store(self.data)
        files = fs.glob(f"{self.root}/{run_id}/{pod_of(REPORT.id)}/*/metrics")
        if len(files) != 1:
            raise Failure(f"The run {run_id} wrote {len(files)} files of metrics, not one.")
        metrics: dict[str, Any] = json.loads(fs.cat_file(files[0]))
        return metrics

"""How artifacts reach all workers and come back: KFP copies them into the step's own pod only."""

import copy
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.contract.artifact_files import list_names, open_file, remove
from pipeline_def.kubeflow.step.executor_io import artifacts_of, local_path, remote_uri
from pipeline_def.kubeflow.step_interface import STORAGE_PARAMETER

_OUTPUT_FILE = "executor_output.json"
_CLOUD = "gs://"


def are_in_place(executor_input: Mapping[str, Any]) -> bool:
    """Return whether workers use the artifacts where they are."""
    return all(artifact["uri"].startswith(_CLOUD) for artifact in artifacts_of(executor_input))


@dataclass(frozen=True)
class ArtifactExchange:
    """The artifacts of one attempt at a step, where its workers find them.

    On gs://, workers use them in place. From any other store they travel through a folder on a
    volume that all workers mount.
    """

    executor_input: Mapping[str, Any]
    """As the launcher gave it."""
    storage: str
    """Folder on gs:// or on a volume that the step and all workers mount."""
    job: str

    @property
    def folder(self) -> str:
        """Folder of this job, removed at its end."""
        return f"{self.storage}/workers/{self.job}"

    def send(self) -> dict[str, Any]:
        """Copy what workers cannot reach; return the executor input for all of them."""
        if list_names(self.folder):
            remove(self.folder)
        sent = copy.deepcopy(dict(self.executor_input))
        inputs = sent.setdefault("inputs", {})
        # Workers cannot derive it from URIs that have changed.
        inputs.setdefault("parameterValues", {})[STORAGE_PARAMETER] = self.storage
        sent["outputs"]["outputFile"] = f"{self.folder}/{_OUTPUT_FILE}"
        if are_in_place(self.executor_input):
            return sent
        for artifact in artifacts_of({"inputs": inputs}):
            path = local_path(artifact["uri"])
            shutil.copytree(path, self.folder + path, dirs_exist_ok=True)
        for artifact in artifacts_of(sent):
            artifact["uri"] = self.folder + local_path(artifact["uri"])
            os.makedirs(os.path.dirname(artifact["uri"]), exist_ok=True)
        return sent

    def receive(self) -> dict[str, Any]:
        """Copy the chief's artifacts back; return its executor output."""
        with open_file(f"{self.folder}/{_OUTPUT_FILE}") as file:
            output: dict[str, Any] = json.load(file)
        for artifact in artifacts_of({"outputs": output}):
            if not are_in_place(self.executor_input):
                path = artifact["uri"].removeprefix(self.folder)
                shutil.copytree(artifact["uri"], path, dirs_exist_ok=True)
                artifact["uri"] = remote_uri(path)
        return output

    def discard(self) -> None:
        """Remove the copies; print an error instead of raising it, which would hide a result."""
        try:
            if list_names(self.folder):
                remove(self.folder)
        except Exception as error:  # of the disk, or any of TensorFlow's
            print(f"{self.folder} is left: {error}", flush=True)

"""What steps that share a pod get of the launcher's message and of each other."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.contract.errors import UserError
from components.storage.folder import replace_file
from pipeline_def.kubeflow.executor_input import artifacts_of, local_path
from pipeline_def.kubeflow.step_interface import StepInterface


@dataclass
class SharedPod:
    """The message of the pod, and the outputs of the parts that have run."""

    given: Mapping[str, Any]
    """Executor input of the launcher."""
    made: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {"artifacts": {}, "parameterValues": {}}
    )
    """Executor output of the pod, with remote URIs."""

    def input_of(self, part: StepInterface) -> dict[str, Any]:
        """Return the executor input of a part, as it would be in a pod of its own."""
        own = copy.deepcopy(dict(self.given))
        inputs, outputs = own["inputs"], own["outputs"]
        prefix = part.shared("")
        inputs["parameterValues"] = {
            name.removeprefix(prefix): value
            for name, value in inputs["parameterValues"].items()
            if name.startswith(prefix)
        }
        for name, output in part.received.items():
            kind = "artifacts" if output in self.made["artifacts"] else "parameterValues"
            inputs[kind][name] = copy.deepcopy(self.made[kind][output])
        needed = ((inputs, part.inputs), (outputs, part.outputs))
        for side, names in needed:
            # A lookup has no outputs but the place that tells it the run's folder.
            if names or not part.lookup:
                side["artifacts"] = {n: a for n, a in side["artifacts"].items() if n in names}
        # TFX takes a file that exists for the output of a driver.
        outputs["outputFile"] += f".{part.step}"
        return own

    def add(self, part: StepInterface, output: Mapping[str, Any]) -> None:
        """Add the executor output of a part."""
        self.made["artifacts"] |= output.get("artifacts", {})
        for name, value in output.get("parameterValues", {}).items():
            self.made["parameterValues"][part.shared(name)] = value

    def keep_outputs(self) -> None:
        """Upload what earlier parts made; the launcher leaves all outputs of a pod that fails."""
        for artifact in artifacts_of({"outputs": {"artifacts": self.made["artifacts"]}}):
            try:
                _upload(Path(local_path(artifact["uri"])), artifact["uri"])
            except (UserError, OSError) as error:
                print(f"WARNING {artifact['uri']} is not kept: {error}", flush=True)


def _upload(source: Path, url: str) -> None:
    """Copy a file or folder of this pod to a store, where the launcher would have put it."""
    if str(source) == url:
        return
    for path in [source] if source.is_file() else sorted(source.rglob("*")):
        if path.is_file():
            replace_file("/".join([url, *path.relative_to(source).parts]), path.read_bytes())

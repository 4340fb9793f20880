"""What KFP's launcher does in the pod, around the step's command (component/launcher_v2.go)."""

from __future__ import annotations

import copy
import json
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kubeflow.launcher.driver import LOGS, Release, driver_arguments
from tests.kubeflow.launcher.platform import Settings, expanded, step_environment
from tests.kubeflow.launcher.pod import Pod
from tests.kubeflow.launcher.records import Metadata, TaskRun
from tests.kubeflow.launcher.store import download, local_path, object_path, upload, upload_uri
from tests.kubeflow.launcher.values import (
    StepError,
    launcher_text,
    parsed_output,
    read_executor_output,
    whole,
)
from tests.kubeflow.launcher.warm import WarmPython


@dataclass(frozen=True)
class Surroundings:
    """What is the same for every step."""

    release: Release
    store: Path
    metadata: Metadata
    image_variables: Mapping[str, str]
    plain_integers: bool
    timeout: float
    python: WarmPython


@dataclass
class Launcher:
    """Runs one step; `result` has its executor input and takes what comes out."""

    around: Surroundings
    component: Mapping[str, Any]
    container: Mapping[str, Any]
    settings: Settings
    pipeline_root: str
    result: TaskRun

    def run(self) -> None:
        """Run the step; raise StepError where the launcher fails."""
        outputs = self.result.executor_input["outputs"].get("artifacts", {})
        logs = {LOGS: outputs[LOGS]} if LOGS in outputs else {}
        new = self.around.release is Release.V2_17
        with tempfile.TemporaryDirectory(prefix="pod-") as folder:
            pod = Pod(Path(folder), self.settings.mounts, self.around.python)
            if new and logs:
                # The number of the attempt: of the first 0.
                outputs[LOGS]["artifacts"][0]["uri"] += "-0"
            command = self._command()
            try:
                written = self._execute(pod, command)
            except StepError:
                if new:
                    self._publish(pod, logs, {})
                raise
            self._collect_parameters(pod, written.get("parameterValues", {}))
            self._publish(pod, outputs, written.get("artifacts", {}))

    def _command(self) -> list[str]:
        """Fill in the command: the driver, then Kubernetes, then the launcher."""
        command = [*self.container.get("command", []), *self.container.get("args", [])]
        inputs = self.result.executor_input["inputs"]
        if self.around.release is Release.V2_17:
            command = list(driver_arguments(command, inputs.get("parameterValues", {})))
        if not command:
            raise StepError("command and arguments are empty")
        definitions = self.component.get("inputDefinitions", {}).get("parameters", {})
        for name, definition in definitions.items():
            if "defaultValue" in definition:
                values = inputs.setdefault("parameterValues", {})
                values.setdefault(name, definition["defaultValue"])
        whole_input = self.result.executor_input
        content = whole(whole_input) if self.around.plain_integers else whole_input
        # Kubernetes expands the launcher's own arguments too, of which this is one.
        text = expanded(json.dumps(content, ensure_ascii=False), self.settings.variables)
        places = {"{{$}}": text, **self._placeholders()}
        filled = []
        for index, argument in enumerate(command):
            argument = expanded(argument, self.settings.variables)
            for place, value in places.items():
                # The program itself gets only {{$}} since 2.14 (compileCmdAndArgs).
                if index or place == "{{$}}" or self.around.release is Release.V2_5:
                    argument = argument.replace(place, value)
            filled.append(argument)
        return filled

    def _placeholders(self) -> dict[str, str]:
        """Say what the launcher puts in besides {{$}} (getPlaceholders)."""
        inputs, places = self.result.executor_input["inputs"], {}
        values = inputs.get("parameterValues", {})
        if None in values.values():
            if self.around.release is Release.V2_5:
                raise StepError("failed to get placeholders: unknown PipelineSpec Value type")
            # The error is lost in compileCmdAndArgs, and with it every placeholder.
            return {}
        outputs = self.result.executor_input["outputs"]
        for side, artifacts in (("inputs", inputs), ("outputs", outputs)):
            for name, listed in artifacts.get("artifacts", {}).items():
                uri = listed["artifacts"][0]["uri"]
                places[f"{{{{$.{side}.artifacts['{name}'].uri}}}}"] = uri
                path = local_path(uri)
                if path is not None:
                    places[f"{{{{$.{side}.artifacts['{name}'].path}}}}"] = path
        for name, value in values.items():
            places[f"{{{{$.inputs.parameters['{name}']}}}}"] = launcher_text(value)
        for name, output in outputs.get("parameters", {}).items():
            places[f"{{{{$.outputs.parameters['{name}'].output_file}}}}"] = output["outputFile"]
        return places

    def _execute(self, pod: Pod, command: list[str]) -> dict[str, Any]:
        """Bring the inputs, run the command, read what it wrote about its outputs."""
        for listed in self.result.executor_input["inputs"].get("artifacts", {}).values():
            uri = listed["artifacts"][0]["uri"]
            path = local_path(uri)
            if path is not None:
                siblings = self.around.release is Release.V2_5
                download(object_path(self.around.store, uri), pod.local(path), siblings=siblings)
        outputs = self.result.executor_input["outputs"]
        paths = [output["outputFile"] for output in outputs.get("parameters", {}).values()]
        artifacts = {
            name: str(local_path(listed["artifacts"][0]["uri"]))
            for name, listed in outputs.get("artifacts", {}).items()
        }
        # Not the executor output's own: without artifacts its folder is the step's to make.
        for path in (*paths, *artifacts.values()):
            pod.local(path).parent.mkdir(parents=True, exist_ok=True)
        log = pod.local(artifacts[LOGS]) if LOGS in artifacts else pod.folder / "log"
        environment = step_environment(self.around.image_variables, self.settings.variables)
        try:
            status = pod.run(command, environment, log, self.around.timeout)
        except subprocess.TimeoutExpired as error:
            raise StepError(f"killed after {error.timeout} s") from error
        finally:
            self.result.log += log.read_text(errors="replace") if log.exists() else ""
        if status:
            raise StepError(f"exit status {status}")
        file = pod.local(outputs["outputFile"])
        return read_executor_output(file, outputs["outputFile"]) if file.exists() else {}

    def _collect_parameters(self, pod: Pod, given: dict[str, Any]) -> None:
        self.result.parameters = dict(given)
        definitions = self.component.get("outputDefinitions", {}).get("parameters", {})
        outputs = self.result.executor_input["outputs"].get("parameters", {})
        for name in outputs.keys() - given.keys():
            kind, path = definitions[name].get("parameterType", ""), outputs[name]["outputFile"]
            try:
                text = pod.local(path).read_text()
                self.result.parameters[name] = parsed_output(text, kind)
            except (OSError, StepError) as error:
                raise StepError(
                    f'failed to read output parameter name="{name}" type="{kind}" '
                    f'path="{path}": {error}'
                ) from error

    def _publish(self, pod: Pod, artifacts: Mapping[str, Any], written: Mapping[str, Any]) -> None:
        """Upload the outputs and record them (uploadOutputArtifacts)."""
        for name, listed in artifacts.items():
            artifact = copy.deepcopy(listed["artifacts"][0])
            # Since 2.17 a step has no say about its log.
            if name in written and (name != LOGS or self.around.release is Release.V2_5):
                _merge(written[name].get("artifacts", [{}])[0], artifact)
            path = local_path(artifact["uri"])
            if path is None:
                self.result.log += f'"{name}" does not have a recognized storage URI\n'
            else:
                try:
                    target = upload_uri(artifact["uri"], self.pipeline_root)
                    found = upload(pod.local(path), object_path(self.around.store, target))
                except StepError as error:
                    message = f'failed to upload output artifact "{name}": {error}'
                    raise StepError(message) from error
                if not found:
                    self.result.log += f'Local filepath "{path}" does not exist\n'
            self.result.outputs[name] = self.around.metadata.record(name, artifact)


def _merge(source: Mapping[str, Any], target: dict[str, Any]) -> None:
    """Take URI and metadata from the step, key by key (mergeRuntimeArtifacts)."""
    if source.get("uri"):
        target["uri"] = source["uri"]
    if "metadata" in source:
        target["metadata"] = {**target.get("metadata", {}), **source["metadata"]}

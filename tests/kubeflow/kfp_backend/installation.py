"""Runs a compiled pipeline with Kubeflow Pipelines' own compiler, driver and launcher.

They are built from KFP's source and run unchanged. `argo.py` walks the workflow in Argo's place,
`kubelet.py` runs its pods in Kubernetes' place. Their servers are small: the Kubernetes API and the
cache are stubs, ML Metadata is its own store.
"""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ml_metadata.metadata_store.metadata_store import MetadataStore
from ml_metadata.proto import metadata_store_pb2

from tests.kubeflow.kfp_backend import argo_workflow, build_command
from tests.kubeflow.kfp_backend.argo import Workflow
from tests.kubeflow.kfp_backend.kubelet import Kubelet
from tests.kubeflow.kfp_backend.services import MetadataService, TaskService, serve
from tests.kubeflow.warm_python import warm_python
from tests.kubeflow.workers.kubernetes_server import KubernetesApi, Objects

_State = metadata_store_pb2.Execution.State
_OUTPUT = metadata_store_pb2.Event.Type.OUTPUT


@dataclass(frozen=True)
class Task:
    """A task as ML Metadata has it: `state` is COMPLETE, CACHED, FAILED or RUNNING."""

    state: str
    outputs: Mapping[str, metadata_store_pb2.Artifact]


@dataclass(frozen=True)
class Run:
    """The result of a run."""

    run_id: str
    tasks: Mapping[str, Task]
    """Steps and sub-DAGs."""
    logs: Mapping[str, str]

    def log(self, task: str) -> str:
        """Return the logs of a task's pods: its driver, then its step."""
        paths = [path for path in self.logs if f"/{task}-driver" in path or f"/{task}/" in path]
        return "".join(f"--- {path}\n{self.logs[path]}" for path in paths)

    def failure(self) -> str:
        """Return the end of the last pod's log, for the message of a failed test."""
        path = list(self.logs)[-1]
        return f"{path}: {self.logs[path][-5000:]}"


@dataclass(frozen=True)
class Installation:
    """Kubeflow Pipelines, with its state between runs."""

    kubelet: Kubelet
    kubernetes: KubernetesApi
    metadata: MetadataStore

    def run(self, spec: Path, parameters: Mapping[str, Any] | None = None) -> Run:
        """Run the pipeline in the file `spec` to its end."""
        run_id = str(uuid.uuid4())
        self.kubelet.logs.clear()
        manifest = argo_workflow(spec, parameters, run_id=run_id)
        Workflow(manifest, run_id, self.kubelet.run).run()
        return Run(run_id, self._tasks(run_id), dict(self.kubelet.logs))

    def _tasks(self, run_id: str) -> dict[str, Task]:
        context = self.metadata.get_context_by_type_and_name("system.PipelineRun", run_id)
        executions = self.metadata.get_executions_by_context(context.id) if context else []
        tasks = {}
        for execution in executions:
            name = execution.custom_properties["task_name"].string_value
            state = _State.Name(execution.last_known_state)
            tasks[name] = Task(state, self._outputs(execution.id))
        # The root is a sub-DAG without a name.
        tasks.pop("", None)
        return tasks

    def _outputs(self, execution: int) -> dict[str, metadata_store_pb2.Artifact]:
        events = self.metadata.get_events_by_execution_ids([execution])
        names = {one.artifact_id: one.path.steps[0].key for one in events if one.type == _OUTPUT}
        found = self.metadata.get_artifacts_by_id(list(names))
        return {names[artifact.id]: artifact for artifact in found}


@contextmanager
def install(
    folder: Path,
    *,
    store: str,
    secrets: Objects,
    volumes: Mapping[str, Path],
) -> Iterator[Installation]:
    """Start the servers of an installation; keys and tokens go to the empty `folder`.

    `store` is host and port of the object store, whose keys are in `secrets`, in
    `mlpipeline-minio-artifact`; `volumes` maps claims to folders.
    """
    commands = [build_command(name) for name in ("driver", "launcher-v2")]
    with serve(MetadataService()) as metadata, serve(TaskService()) as tasks:
        host, _, _ = store.partition(":")
        maps = {
            "kfp-launcher": {"providers": _PROVIDERS.format(endpoint=store)},
            "metadata-grpc-configmap": {
                "METADATA_GRPC_SERVICE_HOST": host,
                "METADATA_GRPC_SERVICE_PORT": str(metadata),
            },
        }
        with KubernetesApi(folder, maps, secrets) as kubernetes, warm_python() as python:
            services = {
                **_service("KUBERNETES", kubernetes.port),
                **_service("METADATA_GRPC_SERVICE", metadata),
                **_service("ML_PIPELINE", tasks, suffix="_GRPC"),
            }
            kubelet = Kubelet(
                commands[0].parent, kubernetes.account, services, maps, secrets, python, volumes
            )
            address = metadata_store_pb2.MetadataStoreClientConfig(host="127.0.0.1", port=metadata)
            yield Installation(kubelet, kubernetes, MetadataStore(address))


_PROVIDERS = """
minio:
  default:
    endpoint: {endpoint}
    region: minio
    disableSSL: true
    credentials:
      fromEnv: false
      secretRef:
        secretName: mlpipeline-minio-artifact
        accessKeyKey: accesskey
        secretKeyKey: secretkey
"""


def _service(name: str, port: int, *, suffix: str = "") -> dict[str, str]:
    """Return the variables by which pods find a service."""
    host = {f"{name}_SERVICE_HOST": "127.0.0.1"}
    return {**host, f"{name}_SERVICE_PORT{suffix}": str(port)}

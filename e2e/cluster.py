"""A cluster with Kubeflow Pipelines: one made with kind, or any that kubectl reaches."""

import base64
import contextlib
import json
import socket
import time
import urllib.request
from collections.abc import Iterator

from e2e.commands import Commands, Failure

NAMESPACE = "kubeflow"
NAME = "tfx-images-e2e"
SECRET = "mlpipeline-minio-artifact"

_MANIFESTS = "github.com/kubeflow/pipelines/manifests/kustomize"
# Since 2.15 the store is SeaweedFS.
_STORES = ("seaweedfs", "minio-service")
_READY = 900
_ANSWER = 60


def create(commands: Commands) -> None:
    """Make a cluster of one node with kind."""
    commands.require("docker", "kind", "kubectl")
    commands.read("kind", "create", "cluster", "--name", NAME, "--wait", "300s")


def delete(commands: Commands) -> None:
    """Remove kind's cluster."""
    commands.read("kind", "delete", "cluster", "--name", NAME)


def build_image(commands: Commands, image: str) -> None:
    """Build the image and load it into kind's node."""
    commands.read("docker", "build", "--tag", image, ".")
    commands.read("kind", "load", "docker-image", image, "--name", NAME)


def install(commands: Commands, release: str) -> None:
    """Install a release of Kubeflow Pipelines from its manifests; wait until it runs."""
    crd = "crd/applications.app.k8s.io"
    kubectl = ("kubectl", "apply", "--kustomize")
    commands.read(*kubectl, f"{_MANIFESTS}/cluster-scoped-resources?ref={release}")
    commands.read("kubectl", "wait", "--for=condition=established", "--timeout=60s", crd)
    commands.read(*kubectl, f"{_MANIFESTS}/env/platform-agnostic?ref={release}")
    commands.read(
        *("kubectl", "--namespace", NAMESPACE, "wait", "--for=condition=available"),
        *(f"--timeout={_READY}s", "deployment", "--all"),
    )


@contextlib.contextmanager
def forward(commands: Commands, service: str, port: int) -> Iterator[str]:
    """Forward a free local port to a service within the block; yield its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        local = free.getsockname()[1]
    target = ("--namespace", NAMESPACE, "port-forward", f"service/{service}", f"{local}:{port}")
    process = commands.start("kubectl", *target)
    try:
        url = f"http://127.0.0.1:{local}"
        wait_for(url)
        yield url
    finally:
        process.terminate()
        process.wait()


def wait_for(url: str, seconds: float = _ANSWER) -> None:
    """Wait until a server answers at `url`, even with an error."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.2)
    raise Failure(f"Nothing answers at {url} within {seconds:.0f} s.")


def find_store(commands: Commands) -> str:
    """Return the service name of this release's object store."""
    listed = commands.read("kubectl", "--namespace", NAMESPACE, "get", "services", "--output=name")
    names = {line.removeprefix("service/") for line in listed.split()}
    for name in _STORES:
        if name in names:
            return name
    raise Failure(f"No object store among the services {', '.join(sorted(names))}.")


def store_environment(commands: Commands, endpoint: str) -> dict[str, str]:
    """Return the variables for fsspec, with the keys in the secret that Kubeflow installs."""
    words = ("kubectl", "--namespace", NAMESPACE, "get", "secret", SECRET, "--output=json")
    data = json.loads(commands.read(*words))["data"]
    key, secret = (base64.b64decode(data[name]).decode() for name in ("accesskey", "secretkey"))
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
    }

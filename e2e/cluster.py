"""Commands on a cluster with Kubeflow Pipelines that kubectl reaches."""

import base64
import contextlib
import json
import shlex
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator

NAMESPACE = "kubeflow"
SECRET = "mlpipeline-minio-artifact"

# Since 2.15 the store is SeaweedFS.
_STORES = ("seaweedfs", "minio-service")
_ANSWER = 60


class Failure(Exception):
    """The test failed; the message says why."""


def read(*words: str) -> str:
    """Run a command to its end; return what it prints."""
    print(f"+ {shlex.join(words)}", flush=True)
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-2000:]
        raise Failure(f"{shlex.join(words)} ended with {done.returncode}: {said}")
    return done.stdout


def follow(*words: str) -> str:
    """Run a command and print its output as it comes; return the output, however it ends."""
    print(f"+ {shlex.join(words)}", flush=True)
    lines = []
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines.append(line)
    return "".join(lines)


@contextlib.contextmanager
def forward(service: str, port: int) -> Iterator[str]:
    """Forward a free local port to a service within the block; yield its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        local = free.getsockname()[1]
    target = ("--namespace", NAMESPACE, "port-forward", f"service/{service}", f"{local}:{port}")
    nothing = subprocess.DEVNULL
    process = subprocess.Popen(("kubectl", *target), stdout=nothing, stderr=nothing)
    try:
        url = f"http://127.0.0.1:{local}"
        _wait_for(url)
        yield url
    finally:
        process.terminate()
        process.wait()


def _wait_for(url: str) -> None:
    """Wait until a server answers at `url`, even with an error."""
    deadline = time.monotonic() + _ANSWER
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.2)
    raise Failure(f"Nothing answers at {url} within {_ANSWER} s.")


def find_store() -> str:
    """Return the service name of this release's object store."""
    listed = read("kubectl", "--namespace", NAMESPACE, "get", "services", "--output=name")
    names = {line.removeprefix("service/") for line in listed.split()}
    for name in _STORES:
        if name in names:
            return name
    raise Failure(f"No object store among the services {', '.join(sorted(names))}.")


def store_environment(endpoint: str) -> dict[str, str]:
    """Return the variables for fsspec, with the keys in the secret that Kubeflow installs."""
    words = ("kubectl", "--namespace", NAMESPACE, "get", "secret", SECRET, "--output=json")
    data = json.loads(read(*words))["data"]
    key, secret = (base64.b64decode(data[name]).decode() for name in ("accesskey", "secretkey"))
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
    }

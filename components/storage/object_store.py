"""Find and open S3-compatible stores, `s3://` and `minio://`.

Kubeflow Pipelines names the objects in its own store `minio://bucket/key`.
"""

import functools
import os
import socket
from pathlib import Path
from typing import Any

from fsspec import AbstractFileSystem

from components.contract.errors import StorageError
from components.contract.printable import hide_login
from components.storage.retry import RETRY_POLICY

SCHEMES = ("s3://", "minio://")

KUBEFLOW_STORES = ("seaweedfs", "minio-service")
"""Services of the store of Kubeflow Pipelines: since 2.16, and before."""

_KUBEFLOW_NAMESPACE = "kubeflow"
_STORE_PORT = 9000
# Exists in every pod with a service account.
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

_CONNECTION = {
    "connect_timeout": 5,
    "read_timeout": RETRY_POLICY.silence,
    # `S3Client` retries.
    "retries": {"total_max_attempts": 1},
    "max_pool_connections": 64,
    # Kubeflow's MinIO dates from 2019 and rejects uploads with today's checksums.
    "request_checksum_calculation": "when_required",
    "response_checksum_validation": "when_required",
}

_KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"


def find_endpoint(url: str) -> str | None:
    """Return the address of the store of `url`; None for AWS."""
    given = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None
    return given or (find_kubeflow_store() if url.startswith("minio://") else None)


@functools.cache
def find_kubeflow_store() -> str:
    """Return the address of the cluster's own store: the first known service that resolves."""
    namespaces = {_KUBEFLOW_NAMESPACE: None}
    if _POD_NAMESPACE.is_file():
        # First in the pod's own namespace.
        namespaces = {_POD_NAMESPACE.read_text(encoding="utf-8").strip(): None, **namespaces}
    hosts = [f"{name}.{space}" for space in namespaces for name in KUBEFLOW_STORES]
    for host in hosts:
        try:
            socket.getaddrinfo(host, _STORE_PORT, type=socket.SOCK_STREAM)
        except OSError:
            continue
        return f"http://{host}:{_STORE_PORT}"
    raise StorageError(
        f"Kubeflow's object store (minio://) is not found: AWS_ENDPOINT_URL is not set, and none "
        f"of {', '.join(hosts)} resolves. Set AWS_ENDPOINT_URL to the store's address; in a "
        "cluster, in env of kubeflow.steps.all."
    )


def open_store(url: str) -> tuple[AbstractFileSystem, str]:
    """Return s3fs for the store of `url`, and the path within it, `bucket/key`."""
    # Takes half a second to import.
    from components.storage.s3_client import S3Client

    options: dict[str, Any] = {"config_kwargs": _CONNECTION, "use_listings_cache": False}
    if endpoint := find_endpoint(url):
        options["endpoint_url"] = endpoint
    return S3Client(**options), url.partition("://")[2].rstrip("/")


def explain_error(url: str, error: Exception) -> StorageError | None:
    """Explain in one sentence what is wrong with the store of `url`; None for other errors."""
    if isinstance(error, StorageError):
        return None
    # Already imported: s3fs, which takes most of a second to import, has raised the error.
    from botocore import exceptions  # type: ignore[import-untyped]

    from components.storage.s3_client import error_code

    endpoint = find_endpoint(url) or "AWS"
    store = f"the object store at {hide_login(endpoint)}"
    reason = hide_login(" ".join(str(error).split()).rstrip("."))
    no_credentials = (
        exceptions.NoCredentialsError
        | exceptions.PartialCredentialsError
        | exceptions.CredentialRetrievalError
    )
    if isinstance(error, PermissionError):
        text = f"Access to {url} in {store} was refused ({reason}): check {_KEYS}."
    elif error_code(error) == "NoSuchBucket":
        bucket = url.partition("://")[2].partition("/")[0]
        text = f"There is no bucket {bucket} in {store}: create it or correct its name."
    elif isinstance(error, no_credentials):
        text = f"There are no credentials for {store}: set {_KEYS}."
    elif isinstance(error, exceptions.ConnectionError | exceptions.HTTPClientError) or (
        reason.startswith("Invalid endpoint")
    ):
        text = (
            f"Cannot reach {store} ({type(error).__name__}): check that it runs there, or set "
            "AWS_ENDPOINT_URL to its address."
        )
    else:
        return None
    return StorageError(text)

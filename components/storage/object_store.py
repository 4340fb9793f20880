"""S3-like object stores, `s3://` and `minio://`, through fsspec.

Kubeflow Pipelines names the objects of its own store `minio://bucket/key`.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from fsspec import AbstractFileSystem

from components.contract.errors import StorageError
from components.storage.retry import PATIENCE

SCHEMES = ("s3://", "minio://")

KUBEFLOW_ENDPOINT = "http://minio-service.kubeflow:9000"
"""The store of Kubeflow Pipelines, as its cluster names it."""

_CONNECTION = {
    "connect_timeout": 5,
    "read_timeout": PATIENCE.silence,
    # `S3Client` asks again.
    "retries": {"total_max_attempts": 1},
    "max_pool_connections": 64,
    # Kubeflow's MinIO is of 2019 and rejects uploads that carry the checksums of today.
    "request_checksum_calculation": "when_required",
    "response_checksum_validation": "when_required",
}

_KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"


def find_endpoint(url: str) -> str | None:
    """Return the address of the store that holds `url`; None for AWS's own."""
    given = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return given or (KUBEFLOW_ENDPOINT if url.startswith("minio://") else None)


def open_store(url: str) -> tuple[AbstractFileSystem, str]:
    """Return s3fs for the store of `url`, and the path within it, `bucket/key`.

    Raises:
        ImportError: s3fs is missing.
    """
    # It takes half a second to import.
    from components.storage.s3_client import S3Client

    options: dict[str, Any] = {"config_kwargs": _CONNECTION, "use_listings_cache": False}
    if endpoint := find_endpoint(url):
        options["endpoint_url"] = endpoint
    return S3Client(**options), url.partition("://")[2].rstrip("/")


def explain_error(url: str, error: Exception) -> StorageError | None:
    """Say in one sentence what is wrong with the store of `url`; None for any other error."""
    # Importing botocore takes a good part of a second; here s3fs has done so.
    from botocore import exceptions  # type: ignore[import-untyped]

    store = f"the object store at {_without_login(find_endpoint(url))}"
    reason = " ".join(str(error).split()).rstrip(".")
    if isinstance(error, PermissionError):
        return StorageError(f"Access to {url} in {store} was refused ({reason}): check {_KEYS}.")
    if error_code(error) == "NoSuchBucket":
        bucket = url.partition("://")[2].partition("/")[0]
        return StorageError(
            f"There is no bucket {bucket} in {store}: create it or correct its name."
        )
    if isinstance(
        error,
        exceptions.NoCredentialsError
        | exceptions.PartialCredentialsError
        | exceptions.CredentialRetrievalError,
    ):
        return StorageError(f"There are no credentials for {store}: set {_KEYS}.")
    unreachable = isinstance(error, exceptions.ConnectionError | exceptions.HTTPClientError)
    if unreachable or reason.startswith("Invalid endpoint"):
        return StorageError(
            f"Cannot reach {store} ({type(error).__name__}): check that it runs, or set "
            f"AWS_ENDPOINT_URL to its address, such as {KUBEFLOW_ENDPOINT}."
        )
    return None


def _without_login(endpoint: str | None) -> str:
    if endpoint is None:
        return "AWS"
    return endpoint.replace(f"{urlsplit(endpoint).netloc.rpartition('@')[0]}@", "", 1)


def error_code(error: Exception) -> str:
    """Return what S3 calls the error of an answer; "" if it is none of its own."""
    response = getattr(error.__cause__, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))

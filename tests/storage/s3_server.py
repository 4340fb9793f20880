"""moto's S3 server in a thread: the real protocol, with objects in memory."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import fsspec
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from components.storage import retry
from components.storage.s3_client import S3Client
from tests.storage.gs_client import SHORT_PAUSES

ACCESS_KEY = "the-access-key"
SECRET_KEY = "the-secret-key"
FAULTS: list[str] = []
"""Statuses of the next responses to requests for an image."""


def set_up_client(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    """Point S3 clients to `endpoint`, with credentials from the environment."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    # Ignore settings of the developer and of AWS machines.
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


_MOTO = DomainDispatcherApplication(create_backend_app)


def _answer(environ: Any, start_response: Any) -> Any:
    if FAULTS and environ["PATH_INFO"].endswith(".jpg") and environ["REQUEST_METHOD"] == "GET":
        start_response(FAULTS.pop(0), [("Content-Length", "0")])
        return []
    return _MOTO(environ, start_response)


@contextmanager
def serve_s3(*buckets: str) -> Iterator[str]:
    """Serve empty buckets, and point clients there; yield the endpoint."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, _answer, True)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    with pytest.MonkeyPatch.context() as monkeypatch:
        set_up_client(monkeypatch, endpoint)
        monkeypatch.setattr(retry, "RETRY_POLICY", SHORT_PAUSES)
        for bucket in buckets:
            # moto keeps the buckets of an earlier server in this process.
            with suppress(FileExistsError):
                _files(endpoint).mkdir(bucket)
        try:
            yield endpoint
        finally:
            empty(endpoint, *buckets)
            forget_clients()
            server.shutdown()
            server.server_close()


def empty(endpoint: str, *buckets: str) -> None:
    """Remove all objects, which moto keeps for the whole process."""
    fs = _files(endpoint)
    for bucket in buckets:
        for key in fs.find(bucket):
            fs.call_s3("delete_object", Bucket=bucket, Key=key.partition("/")[2])


def forget_clients() -> None:
    """Clear fsspec's clients, which keep the credentials of their first request."""
    for client in (fsspec.get_filesystem_class("s3"), S3Client):
        client.clear_instance_cache()


def _files(endpoint: str) -> Any:
    return fsspec.filesystem("s3", endpoint_url=endpoint, use_listings_cache=False)

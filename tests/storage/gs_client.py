"""Point every `gs://` URL of this process to a test server."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import fsspec
import pytest

from benchmarks.gcs_server import GcsServer
from components.storage import retry
from components.storage.cloud_storage import CloudStorage
from components.storage.retry import RetryPolicy

SHORT_PAUSES = RetryPolicy(first_pause=0.01, longest_pause=0.02)


@contextmanager
def point_to(server: GcsServer, policy: RetryPolicy = SHORT_PAUSES) -> Iterator[None]:
    """Send requests to `server` without credentials, and reset the count of retries."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        options = {"endpoint_url": server.endpoint, "token": "anon"}
        monkeypatch.setitem(fsspec.config.conf, "gs", options)
        monkeypatch.setattr(retry, "RETRY_POLICY", policy)
        monkeypatch.setattr(retry, "_counts", Counter())
        CloudStorage.clear_instance_cache()
        try:
            yield
        finally:
            forget_clients()


def forget_clients() -> None:
    """Close the connections of all clients."""
    for fs in CloudStorage._cache.values():
        if fs.session:
            fsspec.asyn.sync(fs.loop, fs.session.close)
    CloudStorage.clear_instance_cache()

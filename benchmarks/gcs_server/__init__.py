"""An emulated Google Cloud Storage for tests and benchmarks: its JSON API over plain HTTP."""

from benchmarks.gcs_server.server import Fault, GcsServer

__all__ = ["Fault", "GcsServer"]

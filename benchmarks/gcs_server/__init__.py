"""An emulated Google Cloud Storage for tests and benchmarks, over plain HTTP.

It has the JSON API and, for reading, the XML API, which S3's clients understand.

No registry has a server that the tests could use: PyPI's gcp-storage-emulator fails at resumable
uploads and empty objects of TensorFlow, fake-gcs-server is a program in Go, and neither resets,
stalls, shortens or damages a response on request.
"""

from benchmarks.gcs_server.server import Fault, GcsServer

__all__ = ["Fault", "GcsServer"]

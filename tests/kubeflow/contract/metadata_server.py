"""ML Metadata's gRPC service over its own store, which the Python package has as a C++ library.

The package's client takes and gives the bytes of the same messages, so they are only passed on.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
from ml_metadata.metadata_store.pywrap.metadata_store_extension import metadata_store as library
from ml_metadata.proto import metadata_store_pb2

_CODES = {code.value[0]: code for code in grpc.StatusCode}


class _Service(grpc.GenericRpcHandler):
    def __init__(self) -> None:
        database = metadata_store_pb2.ConnectionConfig(
            fake_database=metadata_store_pb2.FakeDatabaseConfig()
        )
        options = metadata_store_pb2.MigrationOptions()
        self._store = library.CreateMetadataStore(
            database.SerializeToString(), options.SerializeToString()
        )

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        method = getattr(library, handler_call_details.method.rpartition("/")[2], None)
        if method is None:
            return None

        def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
            response, message, code = method(self._store, request)
            if code:
                text = message.decode() if isinstance(message, bytes) else message
                context.abort(_CODES[code], text)
            return bytes(response)

        return grpc.unary_unary_rpc_method_handler(answer)


@contextmanager
def serve_metadata() -> Iterator[int]:
    """Serve a store that is empty at first and lives in memory; yield the port."""
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((_Service(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(0).wait()

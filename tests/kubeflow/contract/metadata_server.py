"""ML Metadata's gRPC service over its own store, which the Python package has as a C++ library.

The package's client takes and gives the bytes of the same messages, so they are only passed on.
"""

from __future__ import annotations

import grpc
from ml_metadata.metadata_store.pywrap.metadata_store_extension import metadata_store as library
from ml_metadata.proto import metadata_store_pb2

_CODES = {code.value[0]: code for code in grpc.StatusCode}


class MetadataService(grpc.GenericRpcHandler):
    """A store that is empty at first and lives in memory."""

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

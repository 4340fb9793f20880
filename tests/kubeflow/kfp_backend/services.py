"""The gRPC services that KFP's driver and launcher call: ML Metadata and the cache of tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from ml_metadata.metadata_store.pywrap.metadata_store_extension import metadata_store as library
from ml_metadata.proto import metadata_store_pb2

_CODES = {code.value[0]: code for code in grpc.StatusCode}


_STRING, _MESSAGE = 9, 11
_FIELDS = {
    # Its times are left out: they are kept as unknown fields.
    "Task": {"namespace": 2, "pipelineName": 3, "runId": 4, "mlmdExecutionID": 5, "fingerprint": 8},
    "CreateTaskRequest": {"task": 1},
    "ListTasksRequest": {"filter": 5},
    "ListTasksResponse": {"tasks": 1},
}


@contextmanager
def serve(service: grpc.GenericRpcHandler) -> Iterator[int]:
    """Serve calls, one at a time; yield the port."""
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((service,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(0).wait()


class MetadataService(grpc.GenericRpcHandler):
    """ML Metadata's own store, in memory and empty at first.

    The Python package has it as a C++ library, whose functions take and return the bytes of the
    messages, so the service passes them on.
    """

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


def _messages() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="task.proto", package="api", syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, number in fields.items():
            kind = _MESSAGE if field in ("task", "tasks") else _STRING
            added = message.field.add(name=field, number=number, type=kind, json_name=field)
            added.label = added.LABEL_REPEATED if field == "tasks" else added.LABEL_OPTIONAL
            if kind == _MESSAGE:
                added.type_name = ".api.Task"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = {name: pool.FindMessageTypeByName(f"api.{name}") for name in _FIELDS}
    return {name: message_factory.GetMessageClass(kind) for name, kind in found.items()}


class TaskService(grpc.GenericRpcHandler):
    """The two calls of KFP's cache (api/v1beta1/task.proto); it has no tasks at first."""

    def __init__(self) -> None:
        self._tasks: list[Any] = []
        self._messages = _messages()

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        method = handler_call_details.method.rpartition("/")[2]
        answer = {"CreateTaskV1": self._create, "ListTasksV1": self._list}.get(method)
        return answer and grpc.unary_unary_rpc_method_handler(answer)

    def _create(self, request: bytes, _: grpc.ServicerContext) -> bytes:
        task = self._messages["CreateTaskRequest"].FromString(request).task
        self._tasks.append(task)
        return bytes(task.SerializeToString())

    def _list(self, request: bytes, _: grpc.ServicerContext) -> bytes:
        """Return the newest task that has all values of the filter, if there is one."""
        wanted = json.loads(self._messages["ListTasksRequest"].FromString(request).filter)
        found = [task for task in self._tasks if _has(task, wanted["predicates"])]
        return bytes(self._messages["ListTasksResponse"](tasks=found[-1:]).SerializeToString())


def _has(task: Any, predicates: list[dict[str, str]]) -> bool:
    assert all(one["op"] == "EQUALS" for one in predicates)
    return all(getattr(task, one["key"]) == one["stringValue"] for one in predicates)

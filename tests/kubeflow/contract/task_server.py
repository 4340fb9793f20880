"""The two calls that KFP's cache makes to the API server (api/v1beta1/task.proto)."""

from __future__ import annotations

import json
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_STRING, _MESSAGE = 9, 11
_FIELDS = {
    # Its times are left out: they are kept as unknown fields.
    "Task": {"namespace": 2, "pipelineName": 3, "runId": 4, "mlmdExecutionID": 5, "fingerprint": 8},
    "CreateTaskRequest": {"task": 1},
    "ListTasksRequest": {"filter": 5},
    "ListTasksResponse": {"tasks": 1},
}


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
    """The tasks of the cache, none at first."""

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

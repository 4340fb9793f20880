"""The Open Inference Protocol v2 over gRPC: every call becomes a request to the REST routes.

So both have the same answers, errors, limits, metrics and ids. Source:
https://github.com/kserve/open-inference-protocol, specification/protocol/inference_grpc.md.
"""

import asyncio
import contextlib
import json
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import grpc
import numpy as np
from google.protobuf import json_format

from pipeline_def.local.server.grpc_messages import make_messages, parse
from pipeline_def.local.server.inference_protocol import JSON_LENGTH, split_elements
from pipeline_def.local.server.limits import App, Message
from pipeline_def.local.server.metrics import REQUEST_ID
from pipeline_def.local.server.options import ServerOptions
from pipeline_def.local.server.rest import RequestError

_SERVICE = "inference.GRPCInferenceService"

_CALLS_AT_ONCE = 64
_CONNECTIONS = 1000
_IDLE_MS = 300_000
_STATUSES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
_CONTENTS = {
    "FP32": ("fp32_contents", "<f4"),
    "INT64": ("int64_contents", "<i8"),
    "BOOL": ("bool_contents", "?"),
}


@contextlib.asynccontextmanager
async def serving_grpc(app: App, options: ServerOptions) -> AsyncIterator[None]:
    """Serve while the context is open; at its end, finish the calls in progress."""
    server = grpc.aio.server(
        options=[
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", options.max_request_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_allowed_incoming_connections", _CONNECTIONS),
            ("grpc.max_connection_idle_ms", _IDLE_MS),
        ],
        maximum_concurrent_rpcs=_CALLS_AT_ONCE,
    )
    # Clients send one message. To take it as a stream lets a handler stop waiting for it.
    handlers: dict[str, Any] = {
        name: grpc.stream_unary_rpc_method_handler(call)
        for name, call in _Calls(app, options).methods.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
    host = f"[{options.host}]" if ":" in options.host else options.host
    server.add_insecure_port(f"{host}:{options.grpc_port}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(options.timeout)


class _Calls:
    """Handles the calls of the protocol."""

    def __init__(self, app: App, options: ServerOptions) -> None:
        self._app, self._options, self._messages = app, options, make_messages()
        methods = ("ServerLive", "ServerReady", "ServerMetadata", "ModelReady", "ModelMetadata")
        self.methods = {name: self._make_handler(name) for name in (*methods, "ModelInfer")}

    def _make_handler(self, method: str) -> Any:
        answer = self._infer if method == "ModelInfer" else self._get

        async def handle(messages: AsyncIterator[bytes], context: Any) -> bytes:
            caller = _Caller(self._app, context)
            try:
                data = await self._read(messages)
                request = parse(self._messages[f"{method}Request"], data)
                response = await answer(method, request, caller)
            except RequestError as error:
                code = _STATUSES.get(error.status, grpc.StatusCode.INTERNAL)
                await context.abort(code, str(error), caller.trailing)
            context.set_trailing_metadata(caller.trailing)
            return bytes(response.SerializeToString())

        return handle

    async def _read(self, messages: AsyncIterator[bytes]) -> bytes:
        timeout = self._options.timeout
        try:
            async with asyncio.timeout(timeout):
                async for data in messages:
                    return data
        except TimeoutError as error:
            raise RequestError(408, f"The request did not arrive within {timeout:g} s.") from error
        raise RequestError(400, "The call has no message.")

    async def _get(self, method: str, request: Any, caller: "_Caller") -> Any:
        path = {
            "ServerLive": "/v2/health/live",
            "ServerReady": "/v2/health/ready",
            "ServerMetadata": "/v2",
        }.get(method) or _find_path(request.name, request.version)
        _, answer = await caller.ask("GET", f"{path}/ready" if method == "ModelReady" else path)
        return self._fill(f"{method}Response", json.loads(answer))

    def _fill(self, name: str, fields: Mapping[str, Any]) -> Any:
        return json_format.ParseDict(fields, self._messages[name](), ignore_unknown_fields=True)

    async def _infer(self, method: str, request: Any, caller: "_Caller") -> Any:
        path = _find_path(request.model_name, request.model_version)
        is_raw = bool(request.raw_input_contents)
        headers, body = _encode(request)
        length, answer = await caller.ask("POST", f"{path}/infer", headers, body)
        fields = json.loads(answer[:length])
        start, raw = length, []
        for output in fields["outputs"]:
            stop = start + output.pop("parameters")["binary_data_size"]
            raw.append(answer[start:stop])
            start = stop
        response = self._fill(f"{method}Response", fields)
        if is_raw:
            response.raw_output_contents.extend(raw)
            return response
        for output, data in zip(response.outputs, raw, strict=True):
            if output.datatype == "BYTES":
                output.contents.bytes_contents.extend(split_elements(memoryview(data), len(data)))
            else:
                name, dtype = _CONTENTS[output.datatype]
                getattr(output.contents, name).extend(np.frombuffer(data, dtype).tolist())
        return response


def _find_path(name: str, version: str) -> str:
    return f"/v2/models/{name}" + (f"/versions/{version}" if version else "")


def _encode(request: Any) -> tuple[dict[bytes, bytes], bytes]:
    """Return the headers and the body of a request as of REST, with images in binary."""
    data = list(request.raw_input_contents)
    if len(data) > 1:
        raise RequestError(400, "raw_input_contents must have one element for each input.")
    for tensor in request.inputs if not data else ():
        images = tensor.contents.bytes_contents
        data += [part for image in images for part in (struct.pack("<I", len(image)), image)]
    inputs = [
        {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
        for tensor in request.inputs
    ]
    for tensor in inputs:
        tensor["parameters"] = {"binary_data_size": sum(map(len, data))}
    fields: dict[str, Any] = {"inputs": inputs, "parameters": {"binary_data_output": True}}
    fields["parameters"] |= {
        one.key: one.value.string_param for one in request.parameters if one.key == "signature_name"
    }
    if request.id:
        fields["id"] = request.id
    if request.outputs:
        fields["outputs"] = [{"name": output.name} for output in request.outputs]
    text = json.dumps(fields).encode()
    headers = {JSON_LENGTH.encode(): b"%d" % len(text)}
    return headers, b"".join([text, *data])


class _Caller:
    """Asks the application on behalf of one call."""

    def __init__(self, app: App, context: Any) -> None:
        self._app, self._context = app, context
        self.trailing: Sequence[tuple[str, str]] = ()

    async def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[bytes, bytes] | None = None,
        body: bytes = b"",
    ) -> tuple[int, bytes]:
        """Return the length of the JSON in an answer, and the answer.

        Raises:
            RequestError: the application refuses.
        """
        given = {key.encode(): value for key, value in self._context.invocation_metadata() or ()}
        name = given.get(REQUEST_ID, b"")
        sent = {**(headers or {}), b"host": b"localhost"}
        sent[REQUEST_ID] = name if isinstance(name, bytes) else name.encode()
        scope = {
            "type": "http",
            "http_version": "2",
            "scheme": "grpc",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": [*sent.items()],
            "client": (self._context.peer(), 0),
        }
        messages, answer = [{"type": "http.request", "body": body}], bytearray()
        status, found = 500, {}

        async def receive() -> Message:
            if messages:
                return messages.pop()
            # gRPC cancels the handler of a client that hangs up.
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

        async def send(message: Message) -> None:
            nonlocal status, found
            if message["type"] == "http.response.start":
                status, found = message["status"], dict(message["headers"])
            answer.extend(message.get("body", b""))

        await self._app(scope, receive, send)
        self.trailing = ((REQUEST_ID.decode(), found.get(REQUEST_ID, b"").decode()),)
        if status != 200:
            raise RequestError(status, json.loads(answer)["error"])
        return int(found.get(JSON_LENGTH.encode(), len(answer))), bytes(answer)

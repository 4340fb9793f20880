"""The messages of the Open Inference Protocol v2 over gRPC, and how they are read within limits.

Source: https://github.com/kserve/open-inference-protocol, open_inference_grpc.proto.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from pipeline_def.local.server.rest import RequestError

# Fields of each message, numbered from 1. Generated classes would tie the code to one version of
# protobuf. A map is a list of entries, and a choice is several fields; their bytes are the same.
_MESSAGES = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "bool live",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "bool ready",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "string name, string version, repeated string extensions",
    "ModelReadyRequest": "string name, string version",
    "ModelReadyResponse": "bool ready",
    "ModelMetadataRequest": "string name, string version",
    "ModelMetadataResponse": "string name, repeated string versions, string platform, "
    "repeated Tensor inputs, repeated Tensor outputs",
    "ModelInferRequest": "string model_name, string model_version, string id, "
    "repeated Entry parameters, repeated Tensor inputs, repeated Output outputs, "
    "repeated bytes raw_input_contents",
    "ModelInferResponse": "string model_name, string model_version, string id, "
    "repeated Entry parameters, repeated Tensor outputs, repeated bytes raw_output_contents",
    "Tensor": "string name, string datatype, repeated int64 shape, repeated Entry parameters, "
    "Contents contents",
    "Output": "string name, repeated Entry parameters",
    "Entry": "string key, Parameter value",
    "Parameter": "bool bool_param, int64 int64_param, string string_param, double double_param, "
    "uint64 uint64_param",
    "Contents": "repeated bool bool_contents, repeated int32 int_contents, "
    "repeated int64 int64_contents, repeated uint32 uint_contents, "
    "repeated uint64 uint64_contents, repeated float fp32_contents, "
    "repeated double fp64_contents, repeated bytes bytes_contents",
}
# Where images are: field → None, or the fields within it. Millions of other fields of two bytes
# would each take a hundred.
_IMAGES: Mapping[str, Mapping[int, Any]] = {"ModelInferRequest": {7: None, 5: {5: {8: None}}}}
_MOST_OTHER_BYTES = 64 * 2**10
_WIRE_SIZES = {1: 8, 5: 4}


def make_messages() -> Mapping[str, Any]:
    """Return the classes of the protocol's messages by name."""
    types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="inference.proto", package="inference", syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, words in enumerate(filter(None, fields.split(", ")), start=1):
            *repeated, kind, field = words.split()
            label = types.LABEL_REPEATED if repeated else types.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, label=label)
            if kind in _MESSAGES:
                added.type, added.type_name = types.TYPE_MESSAGE, f".inference.{kind}"
            else:
                added.type = types.Type.Value(f"TYPE_{kind.upper()}")
    # A pool of its own: clients in the same process may have registered these names.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    of_name = pool.FindMessageTypeByName
    return {
        name: message_factory.GetMessageClass(of_name(f"inference.{name}")) for name in _MESSAGES
    }


def parse(kind: Any, data: bytes) -> Any:
    """Parse a message of a class of `make_messages`.

    Raises:
        RequestError: it is not such a message, or has too many bytes that are not of images.
    """
    other = 0
    for size in _measure_other(memoryview(data), _IMAGES.get(kind.DESCRIPTOR.name, {})):
        other += size
        if other > _MOST_OTHER_BYTES:
            raise RequestError(413, "The request has too many values besides its images.")
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise RequestError(400, f"The request is not a {kind.DESCRIPTOR.name}.") from error


def _measure_other(data: memoryview, images: Mapping[int, Any]) -> Iterator[int]:
    """Yield the bytes of each field that are not of images.

    Raises:
        RequestError: the fields do not fit the message.
    """
    position = 0
    while position < len(data):
        tag, end = _read_varint(data, position)
        number, wire, start = tag >> 3, tag & 7, end
        if wire == 2:
            size, start = _read_varint(data, end)
            end = start + size
        elif wire == 0:
            _, end = _read_varint(data, end)
        else:
            end += _WIRE_SIZES.get(wire, len(data))
        if end > len(data):
            raise RequestError(400, "The message is cut off.")
        if wire == 2 and number in images:
            yield start - position
            if images[number]:
                yield from _measure_other(data[start:end], images[number])
        else:
            yield end - position
        position = end


def _read_varint(data: memoryview, position: int) -> tuple[int, int]:
    """Return the number at a position, and where it ends."""
    value = 0
    for shift, byte in enumerate(data[position : position + 10]):
        value |= (byte & 127) << 7 * shift
        if byte < 128:
            return value, position + shift + 1
    raise RequestError(400, "The message is cut off.")

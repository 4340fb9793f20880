"""Digest what a SavedModel computes, so that two exports of one model count as the same.

The bytes of two exports differ: TensorFlow numbers functions, nodes and resources by a global
counter, and traces the features of Transform in the order of a set. So the digest of a tensor
covers the operation, its attributes and the digests of its inputs, but no names.
"""

import functools
import graphlib
import hashlib
import os
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from components.storage.saved_model import GRAPH, IDENTITY

# Attributes that contain names, or paths of the machine that exported the model.
_IGNORED = frozenset({"_user_specified_name", "shared_name", "container"})


def write_identity(saved_model: str) -> None:
    """Write the digest of a SavedModel's signatures and assets beside its graph."""
    with tf.io.gfile.GFile(os.path.join(saved_model, GRAPH), "rb") as file:
        [graph] = saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs
    parts = [_GraphDigest(graph.graph_def).digest_signatures(graph.signature_def)]
    for asset in graph.asset_file_def:
        with tf.io.gfile.GFile(os.path.join(saved_model, "assets", asset.filename), "rb") as file:
            parts.append(file.read())
    path = os.path.join(saved_model, IDENTITY)
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.gfile.GFile(path, "w") as file:
        file.write(_digest(parts).hex())


def _digest(parts: Iterable[bytes | str]) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(hashlib.sha256(content).digest())
    return digest.digest()


class _GraphDigest:
    """Digests the tensors of a graph and of its functions."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._functions = {f.signature.name: f for f in graph.library.function}
        self._digest_function = functools.cache(self._digest_function_once)

    def digest_signatures(self, signatures: Mapping[str, Any]) -> bytes:
        """Digest the outputs of each signature as functions of its inputs."""
        parts: list[bytes | str] = []
        for name, signature in sorted(signatures.items()):
            inputs = {
                _node(info.name): _digest([key, _bytes(info.tensor_shape), str(info.dtype)])
                for key, info in signature.inputs.items()
            }
            nodes = self._digest_nodes(self._graph.node, inputs)
            outputs = {key: info.name for key, info in signature.outputs.items()}
            parts += [name, _digest_outputs(outputs, nodes)]
        return _digest(parts)

    def _digest_function_once(self, name: str) -> bytes:
        function = self._functions[name]
        arguments = {
            argument.name: _digest(["argument", str(number), str(argument.type)])
            for number, argument in enumerate(function.signature.input_arg)
        }
        nodes = self._digest_nodes(function.node_def, arguments)
        effects = sorted(nodes[node] for node in function.control_ret.values())
        return _digest([_digest_outputs(function.ret, nodes), *effects])

    def _digest_nodes(
        self, nodes: Iterable[Any], arguments: Mapping[str, bytes]
    ) -> dict[str, bytes]:
        by_name = {node.name: node for node in nodes if node.name not in arguments}
        order = graphlib.TopologicalSorter(
            {name: {_node(ref) for ref in node.input} for name, node in by_name.items()}
        )
        found = dict(arguments)
        for name in order.static_order():
            if name in by_name:
                node = by_name[name]
                inputs = [_tensor(ref, found) for ref in node.input if not ref.startswith("^")]
                control = sorted(found[_node(ref)] for ref in node.input if ref.startswith("^"))
                attributes = [
                    part
                    for key, value in sorted(node.attr.items())
                    if key not in _IGNORED
                    for part in (key, *self._digest_attribute(value))
                ]
                found[name] = _digest([node.op, *attributes, *inputs, "control", *control])
        return found

    def _digest_attribute(self, value: Any) -> list[bytes]:
        called = [value.func] if value.HasField("func") else value.list.func
        if called:
            return [self._digest_function(f.name) for f in called]
        return [_bytes(value)]


def _digest_outputs(outputs: Mapping[str, str], nodes: Mapping[str, bytes]) -> bytes:
    return _digest(
        part for key, ref in sorted(outputs.items()) for part in (key, _tensor(ref, nodes))
    )


def _node(reference: str) -> str:
    return reference.lstrip("^").partition(":")[0]


def _tensor(reference: str, nodes: Mapping[str, bytes]) -> bytes:
    """Digest an output of a node: `node`, `node:0` or, within functions, `node:output:0`."""
    return _digest([nodes[_node(reference)], reference.partition(":")[2].removesuffix("0")])


def _bytes(message: Any) -> bytes:
    content: bytes = message.SerializeToString(deterministic=True)
    return content

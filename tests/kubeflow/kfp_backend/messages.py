"""The protocol messages of a release as Go code, generated from the release's packages on PyPI.

A release takes their Go modules from its own source tree, which the module proxy does not have.
"""

import ast
import subprocess
from pathlib import Path

from google.protobuf import any_pb2, duration_pb2, struct_pb2
from google.protobuf.compiler import plugin_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.rpc import status_pb2

from tests.files import write_files

PACKAGES = {
    "kfp-pipeline-spec": "pipeline_spec_pb2.py",
    "kfp-kubernetes": "kubernetes_executor_config_pb2.py",
}


def generate(module: str, version: str, plugin: Path, folder: Path) -> str | None:
    """Write the Go code of a release's messages into `folder`; return why it could not."""
    names = [f"{package}=={version}" for package in PACKAGES]
    target = folder / "packages"
    command = ["uv", "pip", "install", "--quiet", "--no-deps", "--target", str(target), *names]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return f"{', '.join(names)}: {done.stderr.strip()}"
    request = _request(module, target).SerializeToString()
    output = subprocess.run([plugin], input=request, capture_output=True, check=True).stdout
    response = plugin_pb2.CodeGeneratorResponse.FromString(output)
    write_files(folder, {file.name: file.content for file in response.file})
    return None


def _request(module: str, packages: Path) -> plugin_pb2.CodeGeneratorRequest:
    request = plugin_pb2.CodeGeneratorRequest(parameter=f"module={module}")
    for known in (any_pb2, duration_pb2, struct_pb2, status_pb2):
        serialized = known.DESCRIPTOR.serialized_pb
        request.proto_file.append(FileDescriptorProto.FromString(serialized))
    for name in PACKAGES.values():
        serialized = _serialized(next(packages.rglob(name)).read_text())
        request.proto_file.append(FileDescriptorProto.FromString(serialized))
        request.file_to_generate.append(request.proto_file[-1].name)
    return request


def _serialized(source: str) -> bytes:
    # Read, not imported: the packages of newer releases need a newer protobuf than ours.
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(ast.Attribute(attr="AddSerializedFile"), [ast.Constant(bytes() as file)]):
                return file
    raise ValueError("a generated module without AddSerializedFile")

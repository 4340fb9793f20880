"""What a target would refuse is found in the specification, and the sentence says where."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.contract.errors import ConfigurationError
from pipeline_def.kubeflow.specification import Spec, Target, check_documents, read_documents
from tests.kubeflow.conftest import container

Edit = Callable[[list[Any]], Any]


def with_accelerator(kind: str) -> Edit:
    resources = {"accelerator": {"type": kind, "count": "1"}}
    return lambda docs: container(docs[0], "Trainer").update(resources=resources)


def for_vertex(docs: list[Any]) -> None:
    docs.pop()
    with_accelerator("nvidia.com/gpu")(docs)


def with_many_labels(docs: list[Any]) -> None:
    parameters = docs[0]["root"]["dag"]["tasks"]["Statistics-Schema"]["inputs"]["parameters"]
    value = parameters["SchemaGen_config"]["runtimeValue"]
    value["constant"] = "".join(f'value: "label {n}"' for n in range(5_000))


MISTAKES: list[tuple[Target, str, Edit]] = [
    ("oss", "pipeline name 'My I'", lambda docs: docs[0]["pipelineInfo"].update(name="My I")),
    ("oss", "with gs:// or s3:// or", lambda docs: docs[0].update(defaultPipelineRoot="/data")),
    ("oss", "has no container image", lambda docs: container(docs[0], "Trainer").pop("image")),
    ("oss", "Trainer requests the accelerator 'NVIDIA_T4'", with_accelerator("NVIDIA_T4")),
    ("vertex", "gpu_type to a name like NVIDIA_TESLA_T4", for_vertex),
    ("oss", 'specification is invalid: .*"rooot"', lambda docs: docs[0].update(rooot={})),
    # KFP's backend discards unknown fields there silently.
    ("oss", 'mentSpec .*"imagee"', lambda docs: container(docs[0], "Trainer").update(imagee="x")),
    ("oss", "must contain a specification", lambda docs: docs.clear()),
    ("oss", "may have a document `platforms`", lambda docs: docs.append(5)),
    ("oss", "platform document is invalid", lambda docs: docs[1].update(platform={})),
    ("oss", "parameters of Statistics-Schema .* shorten SchemaGen_config, as", with_many_labels),
    ("vertex", "Vertex AI reads no platform document", lambda docs: None),
]


@pytest.mark.parametrize(("target", "sentence", "edit"), MISTAKES)
def test_a_mistake_is_found(
    compiled: list[Spec], target: Target, sentence: str, edit: Edit
) -> None:
    documents = copy.deepcopy(compiled)
    edit(documents)
    with pytest.raises(ConfigurationError, match=f"would not run this pipeline: .*{sentence}"):
        check_documents(documents, target)


def test_a_correct_specification_is_accepted(compiled: list[Spec]) -> None:
    targets: tuple[tuple[Target, str], ...] = (("oss", "nvidia.com/gpu"), ("vertex", "TPU_V3"))
    for target, kind in targets:
        documents = copy.deepcopy(compiled[:1])
        with_accelerator(kind)(documents)
        check_documents(documents, target)
    check_documents(compiled, "oss")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"a: [", "neither YAML nor JSON"), (b"\xff\xfe\x00", "is not a text file")],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "spec.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=message):
        read_documents(str(file))
    with pytest.raises(ConfigurationError, match="No such file"):
        read_documents(str(tmp_path / "none.yaml"))

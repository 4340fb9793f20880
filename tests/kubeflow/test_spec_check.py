"""What a target would refuse is found in the specification, and the sentence says where."""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.contract.errors import ConfigurationError, StorageError
from pipeline_def.kubeflow.specification import (
    Spec,
    Target,
    find_problems,
    read_documents,
)
from tests.kubeflow.conftest import container

Edit = Callable[[Spec], Any]


def with_accelerator(kind: str) -> Edit:
    resources = {"accelerator": {"type": kind, "count": "1"}}
    return lambda spec: container(spec, "Trainer").update(resources=resources)


def without_image(spec: Spec) -> None:
    container(spec, "Trainer").pop("image")


def misnamed(spec: Spec) -> None:
    spec["pipelineInfo"]["name"] = "My Images"


MISTAKES: list[tuple[Target, str, Edit]] = [
    ("oss", "Invalid pipeline name 'My Images'", misnamed),
    ("oss", "must start with gs:// or s3://", lambda s: s.update(defaultPipelineRoot="/data")),
    ("oss", "Trainer has no container image", without_image),
    (
        "oss",
        "Trainer requests the accelerator 'NVIDIA_TESLA_T4'",
        with_accelerator("NVIDIA_TESLA_T4"),
    ),
    ("vertex", "gpu_type to a name like NVIDIA_TESLA_T4", with_accelerator("nvidia.com/gpu")),
    ("oss", 'specification is invalid: .*"rooot"', lambda s: s.update(rooot={})),
    # KFP's backend discards unknown fields there silently.
    (
        "oss",
        'deploymentSpec is invalid: .*"imagee"',
        lambda s: container(s, "Trainer").update(imagee="x"),
    ),
]


@pytest.mark.parametrize(("target", "sentence", "edit"), MISTAKES)
def test_a_mistake_is_found(
    compiled: list[Spec], target: Target, sentence: str, edit: Edit
) -> None:
    spec = copy.deepcopy(compiled[0])
    edit(spec)
    [problem] = find_problems([spec], target)
    assert re.search(sentence, problem)


def test_a_correct_specification_is_accepted(compiled: list[Spec]) -> None:
    targets: tuple[tuple[Target, str], ...] = (("oss", "nvidia.com/gpu"), ("vertex", "TPU_V3"))
    for target, kind in targets:
        spec = copy.deepcopy(compiled[0])
        with_accelerator(kind)(spec)
        assert find_problems([spec], target) == []
    assert find_problems(compiled, "oss") == []


@pytest.mark.parametrize(
    ("documents", "target", "sentence"),
    [
        (lambda found: [], "oss", "must contain a specification"),
        (lambda found: [found[0], 5], "oss", "may have a document `platforms`"),
        (lambda found: [found[0], {"platform": {}}], "oss", "platform document is invalid"),
        (lambda found: found, "vertex", "Vertex AI reads no platform document"),
    ],
)
def test_documents_that_would_be_refused_or_ignored(
    compiled: list[Spec],
    documents: Callable[[list[Spec]], list[Any]],
    target: Target,
    sentence: str,
) -> None:
    [problem] = find_problems(documents(compiled), target)
    assert sentence in problem


@pytest.mark.parametrize(
    ("content", "message"), [(b"a: [", "neither YAML nor JSON"), (b"\xff\xfe\x00", "not text")]
)
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "spec.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=message):
        read_documents(str(file))
    with pytest.raises(StorageError, match="No such file"):
        read_documents(str(tmp_path / "none.yaml"))

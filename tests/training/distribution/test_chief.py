"""Which worker writes the outputs."""

from __future__ import annotations

import json

import pytest

from pipeline_def.training.distribution.chief import is_chief

OF_TF_JOB = {"worker": ["trainer-worker-0.ns.svc:2222", "trainer-worker-1.ns.svc:2222"]}
OF_VERTEX = {"chief": ["workerpool0-0:2222"], "worker": ["workerpool1-0:2222"]}


@pytest.mark.parametrize(
    ("cluster", "task", "chief"),
    [
        (OF_TF_JOB, ("worker", 0), True),
        (OF_TF_JOB, ("worker", 1), False),
        (OF_VERTEX, ("chief", 0), True),
        (OF_VERTEX, ("worker", 0), False),
        (OF_TF_JOB, ("evaluator", 0), False),
    ],
)
def test_the_chief_of_several(
    cluster: dict[str, list[str]], task: tuple[str, int], chief: bool
) -> None:
    config = {"cluster": cluster, "task": {"type": task[0], "index": task[1]}}
    assert is_chief({"TF_CONFIG": json.dumps(config)}) is chief


@pytest.mark.parametrize("environment", [{}, {"TF_CONFIG": ""}, {"TF_CONFIG": "{}"}])
def test_one_alone_writes(environment: dict[str, str]) -> None:
    assert is_chief(environment)

"""TF_CONFIG: the processes of a training, and the chief among them."""

import json
from typing import Any

import pytest

from components.contract.errors import ConfigurationError
from components.trainer.loop.cluster import Cluster

WORKERS = {"worker": ["a:1", "b:2"]}
WITH_CHIEF = {"chief": ["a:1"], **WORKERS}


def tf_config(cluster: Any, kind: str = "worker", index: Any = 0) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


@pytest.mark.parametrize(
    ("text", "size", "chief"),
    [
        pytest.param(tf_config(WORKERS), 2, True, id="the first of workers alone"),
        pytest.param(tf_config(WORKERS, index=1), 2, False, id="another worker"),
        pytest.param(tf_config(WITH_CHIEF, "chief"), 3, True, id="a chief"),
        pytest.param(tf_config(WITH_CHIEF), 3, False, id="the first worker beside a chief"),
        pytest.param(tf_config(WORKERS, index="1"), 2, False, id="an index as text"),
    ],
)
def test_processes_of_a_cluster_and_the_chief_among_them(text: str, size: int, chief: bool) -> None:
    cluster = Cluster.from_environment({"TF_CONFIG": text})
    assert cluster
    assert (cluster.size, cluster.is_chief) == (size, chief)


@pytest.mark.parametrize("environment", [{}, {"TF_CONFIG": ""}, {"TF_CONFIG": "{}"}])
def test_a_process_on_its_own(environment: dict[str, str]) -> None:
    assert Cluster.from_environment(environment) is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "must be JSON such as"),
        ('{"cluster": 3, "task": {"type": "worker", "index": 0}}', "must be JSON such as"),
        (tf_config(WORKERS, index="first"), "must be JSON such as"),
        (tf_config(WORKERS, index=2), "task is worker 2, but it lists 2 of that type"),
        (tf_config(WORKERS, "evaluator"), "task is evaluator 0, but it lists 0 of that type"),
        (tf_config(WORKERS, "chief"), "task is chief 0, but it lists 0 of that type"),
        (tf_config({"ps": ["a:1"], **WORKERS}), "it lists 'ps'"),
    ],
)
def test_a_malformed_tf_config_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence) as error:
        Cluster.from_environment({"TF_CONFIG": text})
    assert "\n" not in str(error.value)

"""Runs the Trainer in a process of its own, with TFX's executor, as a container would.

`python -m tests.trainer.loop.trainer_process JSON`, with the folders and the
configuration; TF_CONFIG and the like are read from the environment.
"""

import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.contract.configuration import to_dict
from components.contract.errors import UserError
from components.host.startup import end_process, quick_imports
from components.trainer.config.training import TrainerConfig

RUN_FN = "components.trainer.run_fn.run_fn"


def start(
    config: TrainerConfig,
    *,
    examples: str,
    graph: str,
    target: Path,
    log: Path,
    environment: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    """Start a Trainer that writes its artifacts below `target`, and its errors to `log`."""
    facts = {
        "examples": examples,
        "graph": graph,
        "target": str(target),
        "config": to_dict(config),
    }
    module = "tests.trainer.loop.trainer_process"
    with open(log, "wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", module, json.dumps(facts)],
            env={**os.environ, **environment},
            stderr=errors,
        )


def cluster(size: int) -> list[dict[str, str]]:
    """Return the environment of each of `size` workers on this machine."""
    addresses = [f"localhost:{_free_port()}" for _ in range(size)]
    return [
        {
            "TF_CONFIG": json.dumps(
                {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            )
        }
        for index in range(size)
    ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port: int = probe.getsockname()[1]
        return port


def _artifact(kind: Any, uri: str, **properties: str) -> list[Any]:
    artifact = kind()
    artifact.uri = uri
    for name, value in properties.items():
        setattr(artifact, name, value)
    return [artifact]


def _run(facts: Mapping[str, Any]) -> None:
    from tfx.components.trainer.executor import GenericExecutor
    from tfx.types import standard_artifacts

    graph = _artifact(standard_artifacts.TransformGraph, facts["graph"])
    splits = json.dumps(["train", "eval"])
    target = facts["target"]
    GenericExecutor().Do(
        {
            "examples": _artifact(
                standard_artifacts.Examples, facts["examples"], split_names=splits
            ),
            "transform_graph": graph,
        },
        {
            "model": _artifact(standard_artifacts.Model, f"{target}/model"),
            "model_run": _artifact(standard_artifacts.ModelRun, f"{target}/run"),
        },
        {
            "train_args": json.dumps({"splits": ["train"]}),
            "eval_args": json.dumps({"splits": ["eval"]}),
            "run_fn": RUN_FN,
            "custom_config": json.dumps(facts["config"]),
        },
    )


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    try:
        with quick_imports():
            import components.trainer.run_fn  # noqa: F401
        _run(json.loads(sys.argv[1]))
    except UserError as error:
        print(f"Trainer: error: {error}", file=sys.stderr, flush=True)
        end_process(error.exit_status)
    end_process(0)

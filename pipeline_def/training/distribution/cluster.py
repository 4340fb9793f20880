"""The processes that train together, as TF_CONFIG lists them; needs no TensorFlow."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from components.contract.errors import ConfigurationError

_CHIEF, _WORKER = "chief", "worker"
_EXAMPLE = '{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 0}}'


@dataclass(frozen=True)
class Cluster:
    """The processes of one training.

    Source: "TF_CONFIG" in TensorFlow's guide to distributed training.
    """

    addresses: Mapping[str, tuple[str, ...]]
    """chief or worker → host:port of each process."""
    kind: str
    """Whether this process is a chief or a worker."""
    index: int
    """Its index among the processes of that kind."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Cluster | None:
        """Read TF_CONFIG, or return None if it is not set.

        Raises:
            ConfigurationError: TF_CONFIG is malformed.
        """
        text = (os.environ if environment is None else environment).get("TF_CONFIG")
        if not text:
            return None
        try:
            config = json.loads(text)
            addresses = {kind: tuple(hosts) for kind, hosts in config["cluster"].items()}
            cluster = cls(addresses, config["task"]["type"], int(config["task"]["index"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"TF_CONFIG is {text!r}: it must be JSON such as {_EXAMPLE}."
            ) from error
        cluster._check()
        return cluster

    @property
    def size(self) -> int:
        """Number of processes."""
        return sum(map(len, self.addresses.values()))

    def _check(self) -> None:
        unknown = sorted(self.addresses.keys() - {_CHIEF, _WORKER})
        known = self.addresses.get(self.kind, ())
        if unknown:
            problem = f"it lists {unknown[0]!r}, but only a chief and workers can train"
        elif len(self.addresses.get(_CHIEF, ())) > 1:
            problem = "it lists more than one chief"
        elif not 0 <= self.index < len(known):
            problem = (
                f"its task is {self.kind} {self.index}, but it lists {len(known)} of that type"
            )
        elif not all(_is_address(host) for hosts in self.addresses.values() for host in hosts):
            problem = "its cluster must list each process as host:port"
        else:
            return
        raise ConfigurationError(f"TF_CONFIG cannot be used: {problem}.")


def is_chief_process(environment: Mapping[str, str]) -> bool:
    """Return whether TF_CONFIG makes this process the chief; a process on its own always is."""
    config = json.loads(environment.get("TF_CONFIG") or "{}")
    task = config.get("task") or {"type": _CHIEF, "index": 0}
    return is_chief_task(task["type"], int(task["index"]), kinds=config.get("cluster", {}))


def is_chief_task(kind: str, index: int, *, kinds: Collection[str]) -> bool:
    """Return whether a task is the chief: the one of that kind, or else the first worker.

    Vertex AI starts a task of the kind chief; a TFJob has workers only. `kinds` are the kinds of
    all tasks of the cluster.
    """
    return index == 0 and kind == (_WORKER if kinds and _CHIEF not in kinds else _CHIEF)


def _is_address(text: Any) -> bool:
    host, _, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    return bool(host) and port.isascii() and port.isdigit()

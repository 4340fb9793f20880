"""The processes that train together, as TF_CONFIG lists them; needs no TensorFlow."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from components.contract.errors import ConfigurationError

_CHIEF, _WORKER = "chief", "worker"
_EXAMPLE = '{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 0}}'


@dataclass(frozen=True)
class Cluster:
    """The processes of one training.

    Source: "TF_CONFIG" in TensorFlow's guide to distributed training.
    """

    addresses: Mapping[str, list[str]]
    """chief or worker → host:port of each process."""
    kind: str
    """Whether this process is a chief or a worker."""
    index: int
    """Its index among the processes of that kind."""

    @classmethod
    def from_environment(cls) -> Self | None:
        """Read TF_CONFIG, or return None if it is not set, or lists nothing.

        Raises:
            ConfigurationError: TF_CONFIG is malformed.
        """
        text = os.environ.get("TF_CONFIG")
        try:
            config = json.loads(text or "{}")
            if config == {}:
                return None
            addresses = {kind: list(hosts) for kind, hosts in config["cluster"].items()}
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

    @property
    def is_chief(self) -> bool:
        """Whether this process is the chief, or the first worker where there is none."""
        return self.index == 0 and self.kind == (_CHIEF if _CHIEF in self.addresses else _WORKER)

    def check(self, accelerator: str, minutes: float | None = None) -> None:
        """Raise `ConfigurationError` if the processes cannot train together.

        `accelerator` is what `training.accelerator` stands for, `minutes` is `training.minutes`.
        """
        if self.size == 1:
            return
        if minutes is not None:
            raise ConfigurationError(
                f"training.minutes searches on one machine, but TF_CONFIG lists {self.size} "
                "processes: remove one of them."
            )
        if accelerator in ("cpu", "gpu", "mirrored"):
            raise ConfigurationError(
                f"training.accelerator is {accelerator}, but TF_CONFIG lists {self.size} "
                "processes: each would train alone and overwrite the files of the others. Choose "
                "workers or auto."
            )

    def _check(self) -> None:
        unknown = sorted(self.addresses.keys() - {_CHIEF, _WORKER})
        known = len(self.addresses.get(self.kind, ()))
        if unknown:
            problem = f"it lists {unknown[0]!r}, but only a chief and workers can train"
        elif not 0 <= self.index < known:
            problem = f"its task is {self.kind} {self.index}, but it lists {known} of that type"
        else:
            return
        raise ConfigurationError(f"TF_CONFIG cannot be used: {problem}.")

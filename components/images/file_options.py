"""How image files are read, checked and stored: what ingest and prediction have in common."""

from __future__ import annotations

from dataclasses import dataclass

from components.contract.configuration import require
from components.contract.machine import available_cpus
from components.images.options import ImageOptions

_RANGES = {"max_image_mib": (0.001, 1_024), "requests": (1, 65_536), "threads": (1, 1_024)}


@dataclass(frozen=True)
class FileOptions(ImageOptions):
    """How image files are read, checked and stored."""

    max_image_mib: float = 64.0
    """Reject larger files (MiB) without reading them."""

    threads: int | None = None
    """Shards written at the same time by one worker, each by a thread; from 10,000 files on disk
    on by a process, as the interpreter lock holds threads up. Unset: one per core."""

    requests: int = 512
    """Files of a remote store that one worker has under way at the same time; gcsfs opens 100
    connections, so the others wait their turn or are being read."""

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        super().__post_init__()
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            require(
                value is None or low <= value <= high,
                f"ingest.{name} is {value}: it must be from {low} to {high:,}.",
            )

    @property
    def workers(self) -> int:
        """Threads of one worker: `threads`, or one per core that this process may use."""
        return self.threads or available_cpus()

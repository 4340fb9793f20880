"""The section `input` of the configuration: how images get from shards to the accelerator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from components.contract.configuration import require


@dataclass(frozen=True)
class InputConfig:
    """How training and evaluation read the transformed shards."""

    reader: Literal["auto", "indexed", "streamed"] = "auto"
    """indexed: shards on a local disk are mapped into memory, and each batch is decoded by
    libjpeg-turbo, straight into place. streamed: shards are read in sequence and interleaved, by
    TensorFlow alone; for shards in Cloud Storage, and where no Python may run in the input
    pipeline, as under ParameterServerStrategy. auto: indexed if the shards are local."""

    cache: Literal["auto", "none", "encoded", "decoded", "file"] = "auto"
    """What is kept for the second epoch and the ones after it; always before shuffling and
    augmentation. encoded: the shards, in memory. decoded: uint8 pixels, in memory. file: uint8
    pixels, in a file in `cache_folder`. auto: decoded if that takes at most half of the memory
    that is available, else none; the system keeps local shards in memory by itself."""

    cache_folder: str | None = None
    """Folder on a fast local disk, for `cache: file`. Unset: the system's temporary folder. A
    file that is there already, of the same images, is used again."""

    interleave: int = 16
    """Shards read at the same time; their records are mixed. From a bucket, as many downloads."""

    shuffle_buffer: int = 2048
    """Examples that the reader streamed holds, still encoded, to shuffle them; they must be there
    before the first batch is. As records lie in shards in the order of hashes, few are enough. The
    reader indexed needs none: it shuffles all records of `interleave` shards."""

    threads: int = 0
    """Threads that decode. 0: one for each core."""

    prefetch: int = 2
    """Batches made ready ahead of the step that needs them."""

    deterministic: bool = True
    """Same seed, same order of examples, whatever the number of threads. false: a batch that is
    ready goes ahead of one that is not."""

    max_wait: float = 0.1
    """Share of a step's time, 0 to 1, spent waiting for input, above which training says what
    to change."""

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        for name in ("interleave", "shuffle_buffer", "prefetch"):
            value = getattr(self, name)
            require(value >= 1, f"input.{name} is {value}: it must be at least 1.")
        require(
            0 <= self.threads <= 1024,
            f"input.threads is {self.threads}: it must be from 0 to 1024.",
        )
        require(
            0 <= self.max_wait <= 1, f"input.max_wait is {self.max_wait}: it must be from 0 to 1."
        )
        require(
            not (self.reader == "streamed" and self.cache == "encoded"),
            "input.cache is 'encoded': it is read by input.reader indexed, not streamed.",
        )
        require(
            self.cache_folder is None or self.cache == "file",
            f"input.cache_folder is {self.cache_folder!r}: it needs input.cache file.",
        )

"""The section `input` of the configuration: how images get from shards to the accelerator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from components.contract.configuration import require
from components.contract.kinds import check_types

_MOST = {"interleave": 1_024, "shuffle_buffer": 10_000_000, "prefetch": 1_024}


@dataclass(frozen=True)
class InputConfig:
    """How training and evaluation read the transformed shards."""

    reader: Literal["auto", "indexed", "streamed"] = "auto"
    """indexed: shards on a local disk are mapped into memory, and each batch is decoded by
    libjpeg-turbo, straight into place. streamed: shards are read in sequence and interleaved, by
    TensorFlow alone; for shards in Cloud Storage, and where no Python may run in the input
    pipeline, as under ParameterServerStrategy. auto: indexed if the shards are local."""

    cache: Literal["auto", "none", "encoded", "decoded", "file"] = "auto"
    """What is kept for the second epoch and later ones; always as it is before shuffling and
    augmentation. encoded: the shards, in memory. decoded: uint8 pixels, in memory. file: uint8
    pixels, in a file in `cache_folder`. auto: decoded if that takes at most half of the memory that
    is available, else none; the system keeps local shards in memory by itself."""

    cache_folder: str | None = None
    """Folder on a fast local disk, for `cache: file`. Unset: a folder of your own, below
    `$XDG_CACHE_HOME` or `~/.cache`. A file of the same images that is there already is used
    again."""

    cache_file_gib: float = 100.0
    """Most that all files in `cache_folder` may take, GiB; those unused for longest are removed to
    make room. 100 holds 700,000 images of 224 pixels, and leaves room on the disk of a
    workstation."""

    interleave: int = 16
    """Shards that are read at the same time, and their records mixed; from a bucket, the number of
    parallel downloads."""

    shuffle_buffer: int = 2048
    """Examples that the reader streamed holds, still encoded, to shuffle them; the first batch has
    to wait for them. As records lie in shards in the order of hashes, few are enough. The reader
    indexed needs none: it shuffles all records of `interleave` shards."""

    threads: int = 0
    """Threads that decode. 0: one for each CPU that this process may use, in a container its
    quota."""

    prefetch: int = 2
    """Batches made ready ahead of the step that needs them."""

    deterministic: bool = True
    """Same seed, same order of examples, whatever the number of threads. false: a batch that is
    ready goes ahead of one that is not."""

    max_wait: float = 0.1
    """Fraction of a step's time, 0 to 1, spent waiting for input, above which training says what to
    change."""

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        check_types(self, "input")
        for name, most in _MOST.items():
            value = getattr(self, name)
            require(1 <= value <= most, f"input.{name} is {value}: it must be from 1 to {most:,}.")
        require(
            0 <= self.threads <= 1024,
            f"input.threads is {self.threads}: it must be from 0 to 1024.",
        )
        require(
            0 <= self.max_wait <= 1, f"input.max_wait is {self.max_wait}: it must be from 0 to 1."
        )
        require(
            self.cache_file_gib > 0,
            f"input.cache_file_gib is {self.cache_file_gib}: it must be above 0.",
        )
        require(
            not (self.reader == "streamed" and self.cache == "encoded"),
            "input.cache is 'encoded': it is read by input.reader indexed, not streamed.",
        )
        require(
            self.cache_folder is None or self.cache == "file",
            f"input.cache_folder is {self.cache_folder!r}: it needs input.cache file.",
        )

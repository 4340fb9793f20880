"""The section `input`: how images get from shards to the accelerator."""

from typing import Literal

from components.contract.configuration import Text, configuration, require


@configuration("input")
class InputConfig:
    """How training and evaluation read the transformed shards."""

    reader: Literal["auto", "indexed", "streamed"] = "auto"
    """How to read shards. indexed: map local shards into memory. streamed: read shards in
    sequence and interleave them, for shards in Cloud Storage. auto: indexed if the shards are
    local."""

    cache: Literal["auto", "none", "decoded", "file"] = "auto"
    """What to keep in memory or on disk after the first epoch. decoded: uint8 pixels, in memory.
    file: uint8 pixels, in `cache_folder`. auto: decoded if that takes at most half of the available
    memory, else none; the system's page cache keeps local shards in memory anyway. Shuffling and
    augmentation come after the cache."""

    cache_folder: Text | None = None
    """Folder on a fast local disk for `cache: file`. A cache of the same images is reused; files
    that you do not need anymore are yours to remove."""

    def __post_init__(self) -> None:
        """Check the fields against each other."""
        require(
            self.cache_folder is None or self.cache == "file",
            f"input.cache_folder is {self.cache_folder!r}: it needs input.cache file.",
        )
        require(
            self.cache != "file" or bool(self.cache_folder),
            "input.cache is 'file': set input.cache_folder to a folder on a fast local disk.",
        )

"""The choices of ingest, as one frozen dataclass that travels to the executor as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field


def require(condition: bool, message: str) -> None:
    """Raise `ValueError(message)` unless `condition` holds."""
    if not condition:
        raise ValueError(message)


@dataclass(frozen=True)
class IngestConfig:
    """How image files become sharded TFRecords."""

    splits: Mapping[str, float] = field(default_factory=lambda: {"train": 0.8, "eval": 0.2})
    """Share of the images in each split, by hash of the image's content, when the folder has no
    split folders of its own. Needs `train` and `eval`; the shares add up to 1."""

    shard_mib: float = 128.0
    """Aim for shards of this many MiB: large enough to read in one stream, small enough to
    spread over readers."""

    min_shards: int = 8
    """Write at least this many shards per split, so that a reader can interleave them."""

    min_shard_images: int = 16
    """But never fewer images per shard than this: a handful of images needs no eight files."""

    max_reject_fraction: float = 0.01
    """Stop the run when more than this share of the files (0 to 1) are not usable images."""

    max_image_mpixels: float = 100.0
    """Reject larger images (million pixels), from the header, before decoding them."""

    max_image_mib: float = 64.0
    """Reject larger files (MiB) without reading them."""

    min_image_pixels: int = 1
    """Reject images whose shorter side is below this many pixels."""

    threads: int = 2
    """Images checked at the same time by one worker; decoding releases the interpreter lock."""

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        shares = dict(self.splits)
        require(
            {"train", "eval"} <= shares.keys(),
            f"ingest.splits is {shares}: it needs at least train and eval.",
        )
        require(
            all(v > 0 for v in shares.values()) and math.isclose(sum(shares.values()), 1.0),
            f"ingest.splits is {shares}: each share must be above 0 and all must add up to 1.",
        )
        for name in ("shard_mib", "max_image_mpixels", "max_image_mib"):
            value = getattr(self, name)
            require(value > 0, f"ingest.{name} is {value}: it must be above 0.")
        for name in ("min_shards", "min_shard_images", "min_image_pixels", "threads"):
            value = getattr(self, name)
            require(value >= 1, f"ingest.{name} is {value}: it must be at least 1.")
        require(
            0 <= self.max_reject_fraction <= 1,
            f"ingest.max_reject_fraction is {self.max_reject_fraction}: it must be from 0 to 1.",
        )

    def to_json(self) -> str:
        """Serialize to JSON with sorted keys, so that equal configurations give equal text."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> IngestConfig:
        """Rebuild the configuration that `to_json` wrote."""
        return cls(**json.loads(text))

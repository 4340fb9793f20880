"""The choices of ingest, as one frozen dataclass that travels to the executor as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from components.contract.configuration import require
from components.contract.example import is_split_name
from components.contract.kinds import LARGEST
from components.images.options import FileOptions

_COUNTS = {"min_shards": 100_000, "min_shard_images": LARGEST}
# A shard below a tenth of a mebibyte is hardly more than its name; a TFRecord holds up to 2 GiB.
_SHARD_MIB = (0.1, 1_048_576)


@dataclass(frozen=True)
class IngestConfig(FileOptions):
    """How image files become sharded TFRecords."""

    manifest: str | None = None
    """CSV, JSON Lines or Parquet file, path or URL, with the columns path (relative to the folder)
    and label, and, where they are wanted, split and group. Unset: folder names are the labels."""

    span: int | None = None
    """Which span to take when the folder is a pattern with {SPAN} or {YYYY}, {MM} and {DD} (a date
    counts as days since 1970-01-01). Unset: the newest."""

    splits: Mapping[str, float] | None = None
    """Fraction of the images in each split, by hash of the image's content or of its group, where
    neither folder nor manifest names one. Needs `train` and `eval`; the fractions add up to 1.
    Unset: train 0.8, eval 0.1 and test 0.1; with fewer than 1,000 images, of which test would have
    fewer than 100, train 0.8 and eval 0.2."""

    conflicts: Literal["keep", "drop", "fail"] = "keep"
    """What to do with an image that is found under two labels: keep every copy and list them,
    drop every copy into the rejects, or fail."""

    shard_mib: float = 128.0
    """Aim for shards of this many MiB: large enough to read in one stream, small enough to
    spread over readers."""

    min_shards: int = 8
    """Write at least this many shards per split, so that a reader can interleave them."""

    min_shard_images: int = 16
    """Never write fewer images per shard than this: a handful of images needs no eight shards."""

    max_reject_fraction: float = 0.01
    """Stop the run when more than this fraction of the files (0 to 1) are not usable images."""

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        super().__post_init__()
        if self.splits is not None:
            self._check_splits(dict(self.splits))
        low, high = _SHARD_MIB
        require(
            low <= self.shard_mib <= high,
            f"ingest.shard_mib is {self.shard_mib}: it must be from {low} to {high:,}.",
        )
        for name, most in _COUNTS.items():
            value = getattr(self, name)
            require(1 <= value <= most, f"ingest.{name} is {value}: it must be from 1 to {most:,}.")
        require(
            0 <= self.max_reject_fraction <= 1,
            f"ingest.max_reject_fraction is {self.max_reject_fraction}: it must be from 0 to 1.",
        )

    def _check_splits(self, splits: dict[str, float]) -> None:
        require(
            {"train", "eval"} <= splits.keys(),
            f"ingest.splits is {splits}: it needs at least train and eval.",
        )
        for name in splits:
            require(
                is_split_name(name),
                f"ingest.splits names a split {name!r}: take letters, digits, - and _ for it.",
            )
        require(
            all(v > 0 for v in splits.values()) and math.isclose(sum(splits.values()), 1.0),
            f"ingest.splits is {splits}: each fraction must be above 0 and all must add up to 1.",
        )

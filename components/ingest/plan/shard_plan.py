"""Assign files to shards, and keep the plans in one file that all workers read.

As lists of files that Beam moves, the plans of 60,000 small images took more than a third of the
interpreter's time.
"""

import bisect
import hashlib
import itertools
import json
import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from components.contract.artifact_files import make_folders, read_part, write_parts
from components.contract.example import SPAN
from components.ingest.config import IngestConfig
from components.ingest.source.listing import ImageFile, place_in_listing
from components.records.shard_files import PLANS, UNFINISHED, shard_path
from components.storage.row_table import sort

_FILE = "plans"
# Of an average plan: smaller ones are written again together with new files, so that many small
# additions leave at most four times as many shards.
_VERY_SMALL = 0.25
# Of a shard, however small they are, so that many workers share a million icons, and a new image
# rewrites only few others.
_MOST_IMAGES = 10_000


@dataclass(frozen=True)
class ShardPlan:
    """The files of one unit of work, which writes one shard per split.

    It depends on the listing alone, so the number of workers does not change the shards.
    """

    group: str
    """The given split of its files, or "hash"."""
    index: int
    count: int
    """Number of shards of each split in this group of files."""
    files: Sequence[ImageFile]
    """Many of them stay on disk."""
    before: "ShardPlan | None" = field(default=None, compare=False)
    """The plan of an earlier ingest that had the same files, which have not changed."""

    def shards(self, examples_uri: str, splits: Iterable[str]) -> dict[str, str]:
        """Return split → path of the shard of this plan."""
        return {split: shard_path(examples_uri, split, self.index, self.count) for split in splits}


_Part = tuple[Sequence[ImageFile], ShardPlan | None]
"""Files of a plan, and the earlier plan of them."""


def plan_shards(
    files: Sequence[ImageFile],
    config: IngestConfig,
    fractions: Mapping[str, float],
    earlier: Sequence[ShardPlan] = (),
) -> list[ShardPlan]:
    """Divide `files` into plans of about `config.shard_mib`, in the order of their paths' hashes.

    That order mixes the classes, so that no shard holds only one class. Plans in `earlier`, of the
    same options, stay as they are while all their files are unchanged, unless they are very small:
    new files share plans with each other and with the files of plans that have changed.
    """
    mixed = any(file.split is None for file in files)

    # With some splits given and some by hash, two groups would write the same shards. With shards
    # of its own, a new span of a window changes none.
    def run_of(file: ImageFile) -> tuple[str, Any]:
        group = "hash" if mixed else str(file.split)
        return group, file.columns.get(SPAN, 0) if config.window else 0

    ordered = sort(files, ImageFile, lambda file: (*run_of(file), path_hash(file)))
    parts: dict[str, list[_Part]] = {}
    start = 0
    while start < len(ordered):
        group, span = run_of(ordered[start])
        end = bisect.bisect_right(ordered, (group, span), start, key=run_of)
        run, start = ordered[start:end], end
        fraction = max(fractions.values()) if mixed else 1.0
        kept = [plan for plan in earlier if plan.group == group]
        parts.setdefault(group, []).extend(_divide(run, config, fraction, kept))
    return [
        ShardPlan(group, index, len(of_group), part, before)
        for group, of_group in parts.items()
        for index, (part, before) in enumerate(of_group)
        if part
    ]


def _divide(
    files: Sequence[ImageFile], config: IngestConfig, fraction: float, earlier: Sequence[ShardPlan]
) -> list[_Part]:
    """Divide files in the order of their hashes."""
    count = _shard_count(len(files), _size(files), config, fraction=fraction)
    if kept := _find_unchanged(files, earlier):
        if sum(len(part) for part, _ in kept) < len(files):
            size = _size(files)
            kept = [part for part in kept if _size(part[0]) * count >= size * _VERY_SMALL]
        paths = {file.path for part, _ in kept for file in part}
        more = tuple(file for file in files if file.path not in paths)
        files, count = more, math.ceil(count * len(more) / len(files))
    divide = _divide_records if files and files[0].shard else _divide_files
    return [*kept, *((part, None) for part in divide(files, count))]


def _find_unchanged(files: Iterable[ImageFile], earlier: Iterable[ShardPlan]) -> list[_Part]:
    """Return each earlier plan that has only files which have not changed, with these files."""
    known = {file.path: file for file in files} if earlier else {}
    unchanged: list[_Part] = []
    for plan in earlier:
        if all(before.path in known for before in plan.files):
            part = tuple(known[before.path] for before in plan.files)
            if all(map(is_unchanged, part, plan.files)):
                unchanged.append((part, plan))
    return unchanged


def is_unchanged(file: ImageFile, before: ImageFile) -> bool:
    """Return whether a file has the same content and columns as before; its label may differ."""
    if file == before and not file.columns:  # As of most files, in a fifth of the time.
        return bool(file.checksum or file.version)
    return (
        (file.path, file.size) == (before.path, before.size)
        # 1 equals 1.0, but is stored as another type.
        and repr(file.columns) == repr(before.columns)
        and (file.checksum or file.version) == (before.checksum or before.version)
        and bool(file.checksum or file.version)
    )


def _size(files: Iterable[ImageFile]) -> int:
    return sum(file.size for file in files)


def path_hash(file: ImageFile) -> bytes:
    """Return the sort key of a file, which mixes the classes.

    Records of a shard, which may be compressed, stay in their order.
    """
    place, number = place_in_listing(file)
    return _hash(place) + number.to_bytes(8) if file.shard else _hash(place)


def _hash(path: str) -> bytes:
    return hashlib.sha256(path.encode("utf-8", "surrogateescape")).digest()


def _divide_files(files: Sequence[ImageFile], count: int) -> list[Sequence[ImageFile]]:
    """Divide files by equal ranges of their hashes."""

    def number(file: ImageFile) -> int:
        return int.from_bytes(_hash(file.path)[:8]) * count >> 64

    ends = [bisect.bisect_left(files, end, key=number) for end in range(count + 1)]
    return [files[start:end] for start, end in itertools.pairwise(ends)]


def _divide_records(files: Sequence[ImageFile], count: int) -> list[Sequence[ImageFile]]:
    """Divide records of other shards, which stay in order, at records with low hashes.

    A plan has a least number of records, a power of two, and as many more on average.
    """
    least = 1 << max(0, (len(files) // count // 2).bit_length() - 1)
    starts = [0]
    for number, file in enumerate(files):
        is_full = number - starts[-1] >= least
        if is_full and int.from_bytes(_hash(file.path)[:8]) * least >> 64 == 0:
            starts.append(number)
    return [files[start:end] for start, end in itertools.pairwise([*starts, len(files)])]


def _shard_count(files: int, size: int, config: IngestConfig, *, fraction: float) -> int:
    """Return the number of plans that gives the largest split, a `fraction`, full shards.

    It is a power of two, which seldom changes as the data grow.
    """
    by_size = math.ceil(size * fraction / (config.shard_mib * 2**20))
    by_images = math.ceil(files * fraction / _MOST_IMAGES)
    most = max(1, files // config.min_shard_images)
    window = config.min_shards if config.window == "all" else config.window or 1
    least = _power_of_two(math.ceil(config.min_shards / window))
    by_number = min(least, 2 ** (most.bit_length() - 1))
    wanted = _power_of_two(max(by_size, by_images, by_number))
    return min(wanted, _power_of_two(files))


def _power_of_two(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()


def write_plans(examples_uri: str, plans: Sequence[ShardPlan], numbers: Collection[int]) -> None:
    """Write the plans with these numbers to a file, which workers of any Beam runner can read."""
    # Names that are not valid UTF-8 contain surrogates, which JSON escapes.
    texts = (
        json.dumps((plan.group, plan.index, plan.count, [*plan.files])).encode("ascii")
        if number in numbers
        else b""
        for number, plan in enumerate(plans)
    )
    for folder in (UNFINISHED, PLANS):
        make_folders(os.path.join(examples_uri, folder))
    write_parts(_path(examples_uri), texts)


def read_plan(examples_uri: str, number: int) -> ShardPlan:
    """Read the plan with this number, counted from 0."""
    group, index, count, files = json.loads(read_part(_path(examples_uri), number))
    return ShardPlan(group, index, count, tuple(map(ImageFile._make, files)))


def _path(examples_uri: str) -> str:
    return os.path.join(examples_uri, UNFINISHED, _FILE)

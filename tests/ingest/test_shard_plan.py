import collections
import itertools
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from components.ingest.config import IngestConfig
from components.ingest.plan.shard_plan import ShardPlan, plan_shards
from components.ingest.source.listing import ImageFile
from components.records.shard_files import open_shard


def files(count: int, *, split: str | None = None, size: int = 1000) -> list[ImageFile]:
    labels = ("cat", "dog", "owl")
    return [
        ImageFile(f"{labels[i * 3 // count]}/{i}.jpg", labels[i * 3 // count], split, size, "1")
        for i in range(count)
    ]


def plans_of(listed: Sequence[ImageFile], **options: Any) -> list[ShardPlan]:
    config, fractions = IngestConfig(**options), {"train": 0.8, "eval": 0.2}
    return plan_shards(listed, config, fractions)


def test_plans_contain_every_file_once_in_any_order_of_the_listing() -> None:
    listed = files(500)
    plans = plans_of(listed)
    shuffled = random.Random(0).sample(listed, len(listed))
    assert plans_of(shuffled) == plans
    assert sorted(f.path for p in plans for f in p.files) == sorted(f.path for f in listed)
    for plan in plans:
        assert {file.label for file in plan.files} == {"cat", "dog", "owl"}


# Files, bytes of each, options, and the number of plans.
COUNTS: dict[str, tuple[int, int, dict[str, Any], int]] = {
    "enough files for the reader to interleave": (500, 1000, {}, 8),
    "few files make few shards": (40, 1000, {}, 2),
    "fewer than two shards' worth": (31, 1000, {}, 1),
    "large files make more shards": (500, 4 * 2**20, {}, 16),
    "so do many small ones": (1_300, 100, {}, 16),
    "a range of hashes without files makes no plan": (16, 1000, {"min_shard_images": 2}, 7),
}


@pytest.mark.parametrize(("count", "size", "options", "expected"), COUNTS.values(), ids=COUNTS)
def test_number_of_shards(
    monkeypatch: pytest.MonkeyPatch, count: int, size: int, options: dict[str, Any], expected: int
) -> None:
    monkeypatch.setattr("components.ingest.plan.shard_plan._MOST_IMAGES", 100)
    plans = plans_of(files(count, size=size), **options)
    assert len(plans) == expected
    sizes = [len(plan.files) for plan in plans]
    assert max(sizes) < max(2 * count / expected, 5)


@pytest.mark.parametrize("version", ["1", "record 1"])
def test_a_new_file_changes_one_plan(version: str) -> None:
    listed = [
        file._replace(version=version, path=f"cat/{i % 9}.tfrecord#{i}")
        for i, file in enumerate(files(5000))
    ]
    before = [plan.files for plan in plans_of(listed)]
    after = plans_of([*listed, listed[0]._replace(path="cat/0.tfrecord#9999")])
    changed = [plan for plan in after if plan.files not in before]
    assert 1 <= len(changed) <= 2
    assert max(len(plan.files) for plan in after) < 5 * 5000 / 8


def test_plans_stay_while_their_files_do() -> None:
    """Files of changed and of very small plans share plans with the new ones."""
    listed = files(2500)
    plans = [plans_of(listed[:2000])]
    for listing in (listed[:2000], listed[:2020], listed[:2040], listed[:2300], listed[1:]):
        plans.append(
            plan_shards(listing, IngestConfig(), {"train": 0.8, "eval": 0.2}, earlier=plans[-1])
        )
        assert sorted(f for plan in plans[-1] for f in plan.files) == sorted(listing)
    parts = [{plan.files for plan in each} for each in plans]
    assert parts[0] == parts[1] < parts[2]
    assert [len(new - old) for old, new in itertools.pairwise(parts)] == [0, 1, 1, 2, 2]
    assert [len(old - new) for old, new in itertools.pairwise(parts)] == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("window", [2, "all"])
def test_a_new_span_changes_no_plan(window: Any) -> None:
    listed = [f._replace(columns={"span": i % 3}) for i, f in enumerate(files(600))]
    plans = [
        plans_of(some, window=window)
        for some in (listed, [file for file in listed if file.columns["span"] != 2])
    ]
    assert all(len({file.columns["span"] for file in plan.files}) == 1 for plan in plans[0])
    after, before = ([plan.files for plan in each] for each in plans)
    assert after[: len(before)] == before
    assert len(before) == {2: 8, "all": 2}[window]
    assert [(plan.index, plan.count) for plan in plans[0]] == [
        (index, len(after)) for index in range(len(after))
    ]


@pytest.mark.parametrize(
    ("other", "groups"),
    [("eval", {"train": 4, "eval": 2}), (None, {"hash": 4})],
    ids=["given splits have their own shards", "but share those of splits by hash"],
)
def test_groups_of_shards(other: str | None, groups: dict[str, int]) -> None:
    mixed = files(64, split="train") + files(32, split=other)
    plans = plans_of(mixed)
    assert collections.Counter(plan.group for plan in plans) == groups
    assert sorted(str(f) for plan in plans for f in plan.files) == sorted(map(str, mixed))


def write(path: Path, records: Iterable[bytes]) -> None:
    with open_shard(str(path)) as writer:
        for record in records:
            writer.write([record])


def test_a_shard_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "Split-train" / "data_tfrecord-00000-of-00001"
    with pytest.raises(ZeroDivisionError):
        write(path, (bytes(1 // left) for left in (1, 0)))
    assert list(path.parent.iterdir()) == []
    write(path, [b"record"])
    assert [file.name for file in path.parent.iterdir()] == [path.name]

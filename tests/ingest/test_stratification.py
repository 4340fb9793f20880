import collections
import hashlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from components.contract.errors import DataError
from components.ingest.config import IngestConfig
from components.ingest.lookup import list_images
from components.ingest.plan.splits import (
    SplitRule,
    choose_splits,
    expect_images,
    expect_labels,
    find_bounds,
    find_rule,
    require_splits,
)
from components.ingest.source.listing import ImageFile, Listing
from tests.files import write_files

TWO = {"eval": 0.2, "train": 0.8}
THREE = {"eval": 0.1, "test": 0.1, "train": 0.8}


def write(folder: Path, label: str, *, images: int, first: int = 0, content: str = "") -> None:
    (folder / label).mkdir(exist_ok=True, parents=True)
    for number in range(first, first + images):
        (folder / label / f"{number}.jpg").write_text(content or f"{label} {number}")


def divide(listing: Listing) -> dict[str, str]:
    """Return the split of each file."""
    digests = {
        file: hashlib.sha256(Path(listing.root, file.path).read_bytes()).hexdigest()
        for file in listing.files
    }
    rule = find_rule(listing, listing.labels(), digests.items())
    return {file.path: rule.split_of(file, sha256) for file, sha256 in digests.items()}


def count(splits: Mapping[str, str]) -> dict[str, collections.Counter[str]]:
    """Return label → split → images."""
    counts: dict[str, collections.Counter[str]] = {}
    for path, split in splits.items():
        counts.setdefault(path.split("/")[0], collections.Counter())[split] += 1
    return counts


def test_a_given_split_is_kept_and_a_group_stays_together() -> None:
    rule, file = SplitRule({"eval": 0.5, "train": 0.5}), ImageFile("cat/1.jpg", "cat", None, 1, "1")
    digests = [hashlib.sha256(bytes([i])).hexdigest() for i in range(100)]
    # The first digits decide, as in shards of earlier versions.
    ends = ("0" * 13 + "f" * 51, "f" * 13 + "0" * 51)
    assert [rule.split_of(file, sha256) for sha256 in ends] == ["eval", "train"]
    given = file._replace(split="eval")
    assert {rule.split_of(given, sha256) for sha256 in digests} == {"eval"}
    groups = [file._replace(group=f"film {i}") for i in range(100)]
    for member in groups:
        assert len({rule.split_of(member, sha256) for sha256 in digests}) == 1
    assert {rule.split_of(member, digests[0]) for member in groups} == {"train", "eval"}


@pytest.mark.parametrize("fractions", [TWO, THREE])
@pytest.mark.parametrize("images", [10, 30, 60, 200])
def test_small_classes_divided(tmp_path: Path, images: int, fractions: dict[str, float]) -> None:
    for label in ("bird", "cat", "dog"):
        write(tmp_path, label, images=images)
    counts = count(divide(list_images(str(tmp_path), IngestConfig(splits=fractions))))
    for splits in counts.values():
        for split, fraction in fractions.items():
            # What the other splits are short of or have too much, train has.
            allowed = max(1, 0.1 * images * 0.2) * (2 if split == "train" else 1)
            assert abs(splits[split] - fraction * images) <= allowed


@pytest.mark.parametrize(
    ("images", "splits", "least"),
    [
        pytest.param(1, TWO, {"train": 30, "eval": 0}, id="train comes first"),
        pytest.param(2, THREE, {"train": 30, "eval": 30, "test": 0}, id="then eval"),
        pytest.param(3, TWO, {"train": 60, "eval": 30}, id="more than its fraction"),
    ],
)
def test_the_sizes_of_splits_of_small_classes_are_known_before(
    tmp_path: Path, images: int, splits: dict[str, float], least: Mapping[str, int]
) -> None:
    for label in map(str, range(30)):
        write(tmp_path, label, images=images)
    listing = list_images(str(tmp_path), IngestConfig(splits=splits))
    divided = collections.Counter(divide(listing).values())
    assert {split: expect_images(listing, split) for split in splits} == least
    assert divided == {split: count for split, count in least.items() if count}


def test_images_of_classes_that_need_none_in_test_are_expected_there(tmp_path: Path) -> None:
    for label in map(str, range(30)):
        write(tmp_path, label, images=9)
    listing = list_images(str(tmp_path), IngestConfig(splits=THREE))
    expected = expect_labels(listing)
    assert sum(sum(labels.values()) for labels in expected.values()) == pytest.approx(270)
    divided = collections.Counter(divide(listing).values())
    assert divided["test"] / 2 < expect_images(listing, "test") < divided["test"] * 2


@pytest.mark.slow
def test_few_images_change_their_split_as_the_data_grows(tmp_path: Path) -> None:
    """Hashes alone would move none."""
    for label in "abcdefghij":
        write(tmp_path, label, images=100)
    before = divide(list_images(str(tmp_path), IngestConfig(splits=THREE)))
    for label in "abcdefghij":
        write(tmp_path, label, images=60, first=100)
    after = divide(list_images(str(tmp_path), IngestConfig(splits=THREE)))
    moved = sum(after[path] != split for path, split in before.items())
    assert moved <= 0.03 * len(before)


def test_copies_stay_together_and_move_no_other_image(tmp_path: Path) -> None:
    write(tmp_path, "a", images=20)
    before = divide(list_images(str(tmp_path), IngestConfig(splits=TWO)))
    for number in range(15):
        (tmp_path / "a" / f"copy {number}.jpg").write_text(f"a {number}")
    after = divide(list_images(str(tmp_path), IngestConfig(splits=TWO)))
    assert before == {path: after[path] for path in before}
    assert all(after[f"a/{i}.jpg"] == after[f"a/copy {i}.jpg"] for i in range(15))


def test_groups_are_divided_by_their_images(tmp_path: Path) -> None:
    """One of ten films has half of the images: it cannot be taken for a test split of a tenth."""
    rows = [f"a/{i}.jpg,a,{'long' if i < 50 else i % 9}" for i in range(100)]
    rows += [f"b/{i}.jpg,b,both {i % 2}" for i in range(50)]
    rows += [f"a/b{i}.jpg,a,both {i % 2}" for i in range(2)]
    write_files(tmp_path / "images", {row.partition(",")[0]: row for row in rows})
    manifest = tmp_path / "list.csv"
    manifest.write_text("\n".join(["path,label,group", *rows]))
    listing = list_images(
        str(tmp_path / "images"), IngestConfig(manifest=str(manifest), splits=TWO)
    )
    splits = divide(listing)
    of_group: dict[str, set[str]] = {}
    for file in listing.files:
        of_group.setdefault(str(file.group), set()).add(splits[file.path])
    assert all(len(in_splits) == 1 for in_splits in of_group.values())
    assert 10 <= count(splits)["a"]["eval"] <= 60


@pytest.mark.parametrize("group", range(4))
def test_groups_of_several_labels_are_divided_like_a_class(tmp_path: Path, group: int) -> None:
    """Of five patients, each with images of both labels, one is for eval, whatever their names."""
    labels = {f"{label}/{number}.jpg": label for label in "ab" for number in range(50)}
    rows = [f"{path},{label},{group} {n % 5}" for n, (path, label) in enumerate(labels.items())]
    for label in "ab":
        write(tmp_path / "images", label, images=50)
    manifest = tmp_path / "list.csv"
    manifest.write_text("\n".join(["path,label,group", *rows]))
    config = IngestConfig(manifest=str(manifest), splits=TWO)
    splits = divide(list_images(str(tmp_path / "images"), config))
    assert count(splits) == {label: {"train": 40, "eval": 10} for label in "ab"}


def test_bounds_move_no_more_than_necessary() -> None:
    units = [(i / 100 + 0.001, 1) for i in range(100)]
    assert find_bounds(units, THREE) == pytest.approx((0.1, 0.2, 1.0))
    crowded = [(i / 1000, 1) for i in range(100)]
    assert find_bounds(crowded, THREE) == pytest.approx((0.011, 0.022, 1.0))


def test_no_image_for_a_split(tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        write(tmp_path, label, images=1)
    with pytest.raises(DataError, match="eval split, because train has the first of each class"):
        require_splits(expect_labels(list_images(str(tmp_path))), str(tmp_path))
    write(tmp_path, "cat", images=2)
    require_splits(expect_labels(list_images(str(tmp_path))), str(tmp_path))


OWN = {"train": 0.6, "eval": 0.4}
TEN, TESTED = {"eval": 0.1, "train": 0.9}, {"test": 0.1, "train": 0.9}

Splits = dict[str | None, str | None]

# Files of each named split → the split they get, and the fractions by hash.
CASES: dict[str, tuple[dict[str | None, int], Splits, Mapping[str, float]]] = {
    "no splits": ({None: 1000}, {None: None}, THREE),
    "too few for a test split": ({None: 999}, {None: None}, TWO),
    "train alone": ({"train": 1000}, {"train": None}, THREE),
    "test judges only": ({"train": 1000, "test": 5}, {"train": None, "test": "test"}, TEN),
    "train and eval": ({"train": 9999, "eval": 9999}, {"train": "train", "eval": "eval"}, {}),
    "another is left alone": ({"train": 2000, "a": 5}, {"train": None, "a": "a"}, THREE),
    "all splits of a manifest, the rest to train": (
        {"train": 300, "eval": 100, "test": 100, None: 500},
        {"train": "train", "eval": "eval", "test": "test", None: None},
        {"train": 1.0},
    ),
    "eval of a manifest": ({None: 1000, "eval": 5}, {None: None, "eval": "eval"}, TESTED),
}


@pytest.mark.parametrize(("counts", "splits", "fractions"), CASES.values(), ids=CASES.keys())
def test_splits_by_default(
    counts: dict[str | None, int], splits: Splits, fractions: Mapping[str, float]
) -> None:
    chosen, of_hash = choose_splits(counts)
    assert {name: chosen[name] for name in counts} == splits
    if None in splits.values():
        assert list(of_hash.items()) == list(fractions.items())


def test_configured_splits_are_used_as_they_are() -> None:
    assert choose_splits({None: 30}, OWN)[1] == OWN
    assert choose_splits({"train": 30, "test": 5}, OWN) == ({"train": None, "test": "test"}, OWN)

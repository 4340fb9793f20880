"""Transform of examples that have changed a little makes new images only."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow_transform as tft

from components.contract.example import ENCODED, FILENAME, INDEX_FILE, LABEL_ID, SHA256
from components.ingest.config import IngestConfig
from components.records.record_index import read_rows, write_indexed_shard
from components.records.shard_files import read_index, write_index
from components.transform.config import TransformConfig
from components.transform.earlier_images import (
    EarlierImages,
    describe_contents,
    find_earlier_images,
    image_key,
)
from components.transform.shard_writer import TransformShard
from tests import nodes
from tests.conftest import SIZE
from tests.pictures import write_folder

COUNTS = {"blue": 24, "green": 13, "red": 10}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of records that are transformed together."""
    counts: list[int] = []
    make = TransformShard._make

    def counted(self: TransformShard, batches: Iterable[Any], split: str) -> Iterator[Any]:
        return make(self, (counts.append(len(batch)) or batch for batch in batches), split)  # type: ignore[func-returns-value]

    monkeypatch.setattr(TransformShard, "_make", counted)
    return counts


def vocabulary(transformed: nodes.Transformed) -> list[bytes]:
    output = tft.TFTransformOutput(transformed.graph.uri)
    return list(output.vocabulary_by_name("labels"))


@pytest.mark.slow
def test_only_new_images_are_made_and_the_bytes_are_those_of_making_all(
    tmp_path: Path, made: list[int]
) -> None:
    # Images of the train split are kept as they are, and the others are made canonical.
    config, folder = TransformConfig(size=SIZE, storage="originals"), tmp_path / "images"

    def ingest(number: str) -> nodes.Ingested:
        options = IngestConfig(near_duplicates="keep", min_shard_images=1, min_shards=32)
        return nodes.ingest(folder, tmp_path / "ingest", config=options, number=number)

    def transform(examples: nodes.Ingested, target: str, number: str = "") -> nodes.Transformed:
        made.clear()
        return nodes.transform(examples, tmp_path / target, config=config, number=number)

    for label, count in COUNTS.items():
        write_folder(folder, each=count, labels=(label,), first_seed=1000 * count)
    first = transform(ingest("1"), "out", "1")
    assert sum(made) == sum(COUNTS.values())

    (folder / "green/001.jpeg").unlink()
    write_folder(folder, each=12, labels=("red",), first_seed=1000 * COUNTS["red"])
    grown = transform(ingest("2"), "out", "2")
    assert sum(made) == 12 - COUNTS["red"]
    # Red has as many images as green now, and no id changes.
    labels = read_index(grown.examples.uri)["labels"]["train"]
    assert labels["red"] == labels["green"]
    assert vocabulary(grown) == vocabulary(first) == sorted(map(str.encode, COUNTS))
    shards = list(Path(grown.examples.uri).glob("Split-*/*"))
    assert 0 < sum(path.stat().st_nlink > 1 for path in shards) < len(shards)

    write_folder(tmp_path / "more", each=3, labels=("red",), first_seed=9000)
    (tmp_path / "more/red").rename(folder / "amber")
    examples = ingest("3")
    grown = transform(examples, "out", "3")
    assert sum(made) == 3
    assert vocabulary(grown) == [b"amber", *vocabulary(first)]
    anew = transform(examples, "anew")
    assert sum(made) == sum(COUNTS.values()) + 12 - COUNTS["red"] - 1 + 3
    assert shard_bytes(grown) == shard_bytes(anew)


def shard_bytes(transformed: nodes.Transformed) -> dict[str, bytes]:
    return {k: v for k, v in nodes.shard_bytes(transformed.examples).items() if k != INDEX_FILE}


DIGESTS = [f"{number:064d}".encode() for number in range(3)]
SHARD, RENAMED = "data_tfrecord-00001-of-00002", "data_tfrecord-00001-of-00004"


@pytest.fixture
def earlier(tmp_path: Path) -> EarlierImages:
    uri = str(tmp_path / "1")
    examples = [
        {ENCODED: b"image %d" % number, LABEL_ID: 0, SHA256: digest, FILENAME: b"a/b.jpg"}
        for number, digest in enumerate(DIGESTS)
    ]
    write_indexed_shard(uri, "train", SHARD, examples)
    contents = {"train": {SHARD: ["files", "ids"]}}
    write_index(uri, {"train": {SHARD: 3}}, labels={}, ingest={}, made_by="key", contents=contents)
    return find(uri, RENAMED, "files", "ids")


def find(uri: str, shard: str, files: str, ids: str) -> EarlierImages:
    found = find_earlier_images(f"{uri[:-1]}2", "key", {"train": {shard: [files, ids]}})
    assert found
    assert found.uri == uri
    return found


def test_shards_whose_paths_may_be_the_same_are_searched(earlier: EarlierImages) -> None:
    rows = [(digest, b"a/b.jpg", 0) for digest in DIGESTS]
    for shard, found in (
        *((SHARD, rows), ("data_tfrecord-00000-of-00002", None)),
        *(("data_tfrecord-00002-of-00004", rows), ("x-00000-of-00004", None)),
        # The shard of a span, when there are more spans.
        (RENAMED, rows),
    ):
        assert earlier.list_rows("train", shard).get(SHARD) == found
    assert earlier.list_rows("eval", SHARD) == {}
    # The files of a shard that none has followed may be anywhere.
    others = find(earlier.uri, RENAMED, "other files", "ids")
    assert others.list_rows("train", "data_tfrecord-00000-of-00002") == {SHARD: rows}
    images = earlier.find_images("train", [SHARD], DIGESTS[:2])
    assert images == {DIGESTS[0]: b"image 0", DIGESTS[1]: b"image 1"}


def replace(old: bytes, new: bytes, *, later: bool = False) -> Callable[[Path], None]:
    def spoil(shard: Path) -> None:
        before = shard.stat()
        shard.write_bytes(shard.read_bytes().replace(old, new))
        if not later:
            os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))

    return spoil


@pytest.mark.parametrize(
    ("damage", "rows", "images", "is_shared"),
    [
        (Path.unlink, 0, 0, False),
        (lambda shard: shard.write_bytes(shard.read_bytes()[:-5]), 0, 2, False),
        # Found by its checksum.
        (replace(b"image 1", b"image 9"), 3, 1, True),
        (replace(b"image 1", b"image 9", later=True), 0, 1, False),
    ],
    ids=["gone", "truncated", "damaged", "written to"],
)
def test_damaged_images_are_not_used(
    earlier: EarlierImages, damage: Callable[[Path], None], rows: int, images: int, is_shared: bool
) -> None:
    damage(Path(earlier.uri, "Split-train", SHARD))
    assert len(earlier.list_rows("train", SHARD).get(SHARD, ())) == rows
    assert len(earlier.find_images("train", [SHARD], DIGESTS)) == images
    assert earlier.share(("train", RENAMED), f"{earlier.uri[:-1]}2") == is_shared


def test_shards_with_the_rows_of_earlier_ones_are_used_again(earlier: EarlierImages) -> None:
    target, place = f"{earlier.uri[:-1]}2", ("train", RENAMED)
    assert find(earlier.uri, RENAMED, "files", "other ids").equal == set()
    assert earlier.equal == {place}
    assert earlier.share(place, target)
    assert len(read_rows(target, "train", [RENAMED])[0]) == 3
    # The same labels have other ids in another vocabulary.
    index = {"contents": {"train": {SHARD: ["files", "labels"]}}}
    first, other = (describe_contents(index, labels) for labels in ([b"a", b"b"], [b"b", b"a"]))
    assert first["train"][SHARD][0] == other["train"][SHARD][0] == "files"
    assert first["train"][SHARD][1] != other["train"][SHARD][1]


def test_whatever_decides_an_image_is_in_its_key(tmp_path: Path) -> None:
    index = {"made_by": "ingest"}
    key = image_key("code", {"size": 8}, index, ["a", "b"])
    assert key == image_key("code", {"size": 8}, index | {"labels": {}}, ["b", "a"])
    others = (
        image_key("other code", {"size": 8}, index, ["a", "b"]),
        image_key("code", {"size": 9}, index, ["a", "b"]),
        image_key("code", {"size": 8}, {"made_by": "other options"}, ["a", "b"]),
        image_key("code", {"size": 8}, index, ["a"]),
        image_key("", {"size": 8}, index, ["a", "b"]),
        image_key("code", {"size": 8}, {}, ["a", "b"]),
    )
    assert len({key, *others}) == len(others)
    assert find_earlier_images(str(tmp_path / "2"), "", {}) is None

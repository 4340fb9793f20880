"""Shards of every format give the images of the folder that they were made of."""

import dataclasses
import gzip
import json
import re
import struct
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import pyarrow.parquet
import pytest

from benchmarks.gcs_server import GcsServer
from components.contract.errors import ConfigurationError, DataError, UserError
from components.ingest.config import IngestConfig
from components.ingest.datasets import example_records
from components.ingest.datasets.reading import read_images
from components.ingest.datasets.record_listing import split_of_shard
from components.ingest.lookup import list_images
from components.ingest.source.listing import Listing
from components.records.tfrecord import frame, masked_crc, read_records
from components.storage.fetch import Content, Unread
from tests.ingest.plain import HEADER, Ingested, ingest
from tests.ingest.test_listing import touch
from tests.ingest.test_quirks import PNG, Named, encode, row, write
from tests.pictures import write_folder
from tests.storage.gs_client import point_to


class Image(NamedTuple):
    label: str
    data: bytes


CLASSES = ["blue", "green", "red"]
SHARDS = [
    "x-{}.tfrecord",
    "x.tfrecord-{:05d}-of-00002",  # Zipped, as its bytes tell.
    "x-{}.tar",
    "x-{}.tar.gz",
    "x-{}.parquet",
]
KINDS = pytest.mark.parametrize("name", SHARDS)


def shard(name: str, images: Sequence[Image]) -> bytes:
    """Encode images as a shard, in groups of 16 records where the format has some."""
    if ".tar" in name:
        data = encode("x.tar", samples(images))
    elif name.endswith(".parquet"):
        rows = [
            row(CLASSES.index(label), image={"bytes": data, "path": "x.jpg"})
            for label, data in images
        ]
        data = encode(name, Named(rows, CLASSES))
    else:
        data = encode(
            name, [{"image/encoded": d, "image/class/text": label} for label, d in images]
        )
    return gzip.compress(data) if name.endswith((".gz", "-of-00002")) else data


def samples(images: Sequence[Image]) -> Iterable[tuple[str, bytes]]:
    for number, (label, data) in enumerate(images):
        # Pickled members are never read, and long names need a member of their own.
        key = f"{'deep/' * 30}{number:05d}" if number == 3 else f"{number:05d}"
        yield from ((f"{key}.jpg", data), (f"{key}.pyd", b"cos\nsystem\n"))
        yield f"{key}.json", json.dumps({"label": label}).encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("datasets") / "images", each=20)


@pytest.fixture(scope="module")
def images(folder: Path) -> list[Image]:
    files = list_images(str(folder)).files
    return [Image(file.label, (folder / file.path).read_bytes()) for file in files]


@pytest.fixture(scope="module")
def expected(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Ingested:
    return ingest(folder, tmp_path_factory.mktemp("expected"))


def contents(listing: Listing) -> list[Content]:
    return [content for _, content in read_images(listing.root, listing.files, HEADER)]


@KINDS
def test_the_images_are_those_of_the_folder(
    name: str, expected: Ingested, images: list[Image], tmp_path: Path
) -> None:
    shards = tmp_path / "shards"
    write(shards, {name.format(n): shard(name.format(n), images[n::2]) for n in range(2)})
    # Found without their numbers: `a#10` would come before `a#9`.
    read_back = contents(list_images(str(shards)))
    assert read_back == [image.data for image in (*images[::2], *images[1::2])]
    output = ingest(shards, tmp_path / "a")
    assert output.counts == expected.counts
    # Listings of Parquet have mean sizes.
    assert file_sizes(output) == file_sizes(expected)
    assert digests(output.shards("train")) == digests(expected.shards("train"))


def file_sizes(output: Ingested) -> list[int]:
    return sorted(
        example.features.feature["image/file_size"].int64_list.value[0]
        for path in output.examples.glob("Split-*/*")
        for example in map(example_records._parse, map(bytes, read_records(str(path))))
    )


def digests(shards: bytes) -> list[bytes]:
    return sorted(re.findall(rb"[0-9a-f]{64}", shards))


@KINDS
def test_damage_costs_the_rest_of_a_shard(name: str, images: list[Image], tmp_path: Path) -> None:
    path, data = tmp_path / name.format(0), shard(name.format(0), images)
    path.write_bytes(data[: len(data) // 2])
    if name == "x-{}.parquet":  # Its index is at the end.
        with pytest.raises(DataError, match=rf"None of 1 shards .*{path.name}: "):
            list_images(str(tmp_path))
        return
    listing = list_images(str(tmp_path))
    *good, (damaged, why) = read_images(str(tmp_path), listing.files, HEADER)
    assert 0 < len(good) < len(images)
    assert [content for _, content in good] == [image.data for image in images[: len(good)]]
    assert damaged.path == f"{path.name}#{len(good)}"
    assert isinstance(why, Unread)
    assert "from here on are lost" in why.reason
    assert f"{path.name} is damaged at record {len(good)}" in "".join(listing.notes)


@KINDS
def test_a_shard_changed_after_its_listing(name: str, images: list[Image], tmp_path: Path) -> None:
    path = tmp_path / name.format(0)
    path.write_bytes(shard(path.name, images[:30]))
    listing = list_images(str(tmp_path))
    path.write_bytes(shard(path.name, images[20:]))
    assert {type(content) for content in contents(listing)} == {Unread}
    assert list_images(str(tmp_path)).fingerprint() != listing.fingerprint()
    path.unlink()
    [(_, why)] = read_images(str(tmp_path), listing.files[:1], HEADER)
    assert why == Unread("its shard has gone since it was listed")


def test_a_wrong_checksum_rejects_one_record(images: list[Image], tmp_path: Path) -> None:
    data = bytearray(shard("x.tfrecord", images))
    data[data.index(images[4].data) + 50] ^= 1
    (tmp_path / "x.tfrecord").write_bytes(data)
    output = ingest(
        tmp_path, tmp_path / "out", dataclasses.replace(HEADER, max_reject_fraction=0.5)
    )
    [reject] = output.lines("rejects.jsonl")
    why = {"category": "unreadable", "reason": "its checksum is wrong"}
    assert reject == {"path": "x.tfrecord#4", **why}
    assert sum(output.counts.values()) == len(images) - 1


@pytest.mark.parametrize("length", [2**60, 2**30, 100_000])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_hostile_lengths(images: list[Image], tmp_path: Path, length: int, pack: Any) -> None:
    size = struct.pack("<Q", length)
    data = pack(size + masked_crc(google_crc32c.value(size)) + b"x" * 100)
    write(tmp_path, {"a.tfrecord": shard("", images), "b.tfrecord": data})
    listing = list_images(str(tmp_path))
    assert listing.files[-1].path == "b.tfrecord#0"
    assert "b.tfrecord is damaged at record 0" in "".join(listing.notes)


@pytest.mark.parametrize(
    ("kind", "size", "reason"),
    [
        (tarfile.GNUTYPE_LONGNAME, 2**21, "a header is too long"),
        (tarfile.GNUTYPE_LONGNAME, -512, "a header is damaged"),
        (tarfile.REGTYPE, -512, "a header"),
    ],
)
def test_a_hostile_header_of_a_tar_file(
    kind: bytes, size: int, reason: str, images: list[Image], tmp_path: Path
) -> None:
    """It is neither read into memory nor read again and again."""
    first, header = tarfile.TarInfo("x"), tarfile.TarInfo("y")
    header.type, header.size = kind, size
    hostile = first.tobuf() + header.tobuf() + bytes(2**21)
    write(tmp_path, {"a.tar": samples(images), "b.tar": hostile})
    notes = list_images(str(tmp_path)).notes
    assert "b.tar is damaged at record 0: " in "".join(notes)
    assert reason in "".join(notes)


@pytest.mark.slow
def test_a_zip_bomb_is_not_held_in_memory(images: list[Image], tmp_path: Path) -> None:
    bomb = gzip.compress(shard("", [Image("red", b"\0" * 2**25)]))
    write(tmp_path, {"a.tfrecord": shard("", images), "b.tfrecord.gz": bomb})
    config = IngestConfig(check="header", max_image_mib=1, max_reject_fraction=0.5)
    output = ingest(tmp_path, tmp_path / "out", config)
    [reject] = output.lines("rejects.jsonl")
    assert (reject["path"], "MiB" in reject["reason"]) == ("b.tfrecord.gz#0", True)


def test_one_large_image_of_a_row_group_is_rejected(images: list[Image], tmp_path: Path) -> None:
    """Parquet tells the mean sizes of row groups only; those far too large are not read."""
    large = Image("red", b"\0" * 2**19)
    shards = {"a.parquet": [*images, large], "b.parquet": [images[0], large]}
    write(tmp_path, {name: shard(name, content) for name, content in shards.items()})
    config = IngestConfig(check="header", max_image_mib=0.01, max_reject_fraction=0.5)
    output = ingest(tmp_path, tmp_path / "out", config)
    places = (f"a.parquet#{len(images)}", "b.parquet#0", "b.parquet#1")
    assert sorted(output.rejected()) == [(place, "too large") for place in places]


@pytest.mark.parametrize(
    ("features", "label"),
    [
        ({"image": PNG, "label": 2}, "red"),  # TFDS
        ({"image/encoded": PNG, "image/class/label": 2, "image/height": 3}, "2"),  # Model Garden
        ({"image/encoded": PNG, "image/class/label": 2, "image/class/text": "r"}, "r"),
        ({"image_raw": PNG, "class": "red"}, "red"),
        ({"pixels": PNG, "label": "red"}, "red"),  # found by its first bytes
    ],
)
def test_known_names(features: dict[str, Any], label: str, tmp_path: Path) -> None:
    write(tmp_path, {"d-train.tfrecord": [features], "label.labels.txt": "\n".join(CLASSES)})
    listing = list_images(str(tmp_path))
    assert [(file.label, file.split) for file in listing.files] == [(label, None)]
    reason = "names of the labels" if "label" in features else "not a shard"
    assert listing.skipped == {"label.labels.txt": reason}


def test_a_prepared_tfds_folder(tmp_path: Path) -> None:
    files: dict[str, Any] = {
        f"3.0.2/flowers-{split}.tfrecord-00000-of-00001": [row(n) for n in (1, 2)]
        for split in ("train", "test")
    }
    files |= dict.fromkeys(("3.0.2/features.json", "3.0.2/dataset_info.json"), "{}")
    write(tmp_path, {**files, "3.0.2/label.labels.txt": "\n".join(CLASSES)})
    listing = list_images(str(tmp_path))
    assert listing.layout == "tfds"
    assert {file.label for file in listing.files} == {"green", "red"}
    assert {file.split for file in listing.files} == {None, "test"}
    # The first name has no records.
    assert "write its lines as 1:blue" in listing.notes[-1]


@pytest.mark.slow
def test_shards_in_a_bucket(images: list[Image]) -> None:
    with GcsServer() as server, point_to(server):
        for kind in SHARDS:
            server.put("bucket", f"{kind}/{kind.format(0)}", shard(kind.format(0), images))
            server.fault_every = {3: "short"}
            read_back = contents(list_images(f"gs://bucket/{kind}"))
            assert read_back == [image.data for image in images]


def test_a_damaged_page_of_parquet(images: list[Image], tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(shard(path.name, images))
    group = pyarrow.parquet.read_metadata(path).row_group(1)
    columns = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
    start = columns["image.bytes"].data_page_offset
    data = bytearray(path.read_bytes())
    data[start : start + 40] = b"\xff" * 40
    path.write_bytes(data)
    read_back = contents(list_images(str(tmp_path)))
    lost = [number for number, content in enumerate(read_back) if isinstance(content, Unread)]
    assert lost == list(range(lost[0], len(images)))


def test_two_images_of_a_sample(tmp_path: Path) -> None:
    members = [("0.right.jpg", PNG + b"0"), ("0.left.jpg", PNG + b"1"), ("0.cls", b"1")]
    members += [("1.left.jpg", PNG + b"2"), ("1.cls", b"2"), ("1.cls", b"3")]
    write(tmp_path, {"x.tar": members})
    listing = list_images(str(tmp_path), IngestConfig(features={"image": "left.jpg"}))
    assert contents(listing) == [PNG + b"1", PNG + b"2"]
    listing = list_images(str(tmp_path), IngestConfig(features={"image": "right.jpg"}))
    assert [file.path for file in listing.files] == ["x.tar#0"]
    # A member of the same name begins another sample.
    assert listing.skipped["x.tar#2"] == "no image"
    assert "2 of 3 records are skipped, such as x.tar#1: no image." in listing.notes


def test_names_from_the_options(tmp_path: Path) -> None:
    parts = enumerate(["train", "validation", "test"])
    rows = [{"a": PNG, "b": "blue", "part": part, "who": "x" * n} for n, part in parts]
    write(tmp_path, {"x.tfrecord": rows})
    names = {"image": "a", "label": "b", "split": "part", "group": "who"}
    listing = list_images(str(tmp_path), IngestConfig(features=names))
    assert listing.taken == "image from a, label from b, split from part, group from who"
    taken = [(file.label, file.split, file.group) for file in listing.files]
    assert taken == [("blue", "train", None), ("blue", "eval", "x"), ("blue", "test", "xx")]
    with pytest.raises(DataError, match="takes image from 'img'"):
        list_images(str(tmp_path), IngestConfig(features={"image": "img"}))
    with pytest.raises(ConfigurationError, match=r"ingest.features names a feature for 'pic'"):
        IngestConfig(features={"pic": "img"})


GOOD = {"a.tfrecord": [row(1)]}
# Files → what the error says.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "images": ({**GOOD, "cat/1.jpg": b"x"}, "both shards and imag"),
    "several formats": ({**GOOD, "b.tar": b"x"}, "shards of several form"),
    "no labels in one": ({**GOOD, "b.tfrecord": [{"image": PNG}]}, "b.tfrecord"),
    "no shards of train": ({"test-0.tfrecord": [row(1)]}, "test, but none of train"),
    "no header": (
        {"a.tar": tarfile.TarInfo("a.jpg").tobuf().replace(b"a.jpg", b"b.jpg")},
        "a header is damaged (bad checksum)",
    ),
    "no Parquet": ({"a.parquet": b"x" * 600}, "None of 1 shards"),
    "Arrow": ({"a.arrow": b"x"}, "no shards but a.arrow and the like, an Arrow file: write"),
    "sequences": (
        {"a.tfrecord": b"".join(frame([b"\x0a\x00\x12\x04\x0a\x02\x0a\x00"]))},
        "SequenceExamples",
    ),
    "Delta": (
        {"_delta_log/0.json": b"x", "a.parquet": b"x"},
        "Cannot read a Delta table, {0}/_delta_log/0.json: read its current",
    ),
    "Iceberg": ({"data/a.parquet": b"x", "metadata/v1.metadata.json": b"x"}, "an Iceberg table"),
    "Hudi": ({".hoodie/hoodie.properties": b"x", "a.parquet": b"x"}, "a Hudi table"),
    "HDF5": ({"train.h5": b"x", "val.h5": b"x"}, "{0} has no images in label folders: put them"),
    "nothing but leftovers": (
        {"_temporary/0/a.parquet": b"x"},
        "has no shards but _temporary/0/a.parquet and the like, left by",
    ),
}


@pytest.mark.parametrize(("files", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_unusable_shards(files: dict[str, Any], message: str, tmp_path: Path) -> None:
    write(tmp_path, files)
    with pytest.raises(DataError, match=re.escape(message.format(tmp_path))):
        list_images(str(tmp_path))


@pytest.mark.parametrize("log", ["_delta_log/0.json", "metadata/v1.metadata.json"])
def test_the_shards_of_a_table_are_no_data_set(log: str, tmp_path: Path) -> None:
    write(tmp_path, {log: b"x", "data/0.parquet": [row("cat")]})
    with pytest.raises(DataError, match=rf"Cannot read an? .* table, {tmp_path}/{log}: "):
        list_images(f"{tmp_path}/data")


def test_splits_of_names() -> None:
    splits = {
        "data/train-00000-of-00002-0a1b.parquet": "train",
        "cifar10-test.tfrecord-00000-of-00001": "test",
        "Split-eval/data_tfrecord-00000-of-00008": "eval",
        "default/validation/0000.parquet": "eval",
        "imagenet-val-000012.tar": "eval",
        "strain-0.tar": None,
    }
    assert {path: split_of_shard(path) for path in splits} == splits


def test_what_readers_pass_over_is_skipped(folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "shards", {"data/train-00000-of-00001": [row("cat")]})
    reasons = {
        "_temporary/0/train-00000-of-00001": "left by an unfinished writer",
        "idx_files/train-00000-of-00001": "an index of shards",
        "model.ckpt-9.data-00000-of-00001": "a checkpoint",
        "cache-0123456789abcdef.arrow": "an Arrow file: write the data set as Parquet",
        "notes.bagz.txt": "not a shard",
    }
    listing = list_images(str(touch(tmp_path / "shards", *reasons)))
    assert {file.shard for file in listing.files} == {"data/train-00000-of-00001"}
    assert listing.skipped == reasons
    # An archive beside its images is no shard.
    beside = touch(tmp_path / "beside", "images.tar", "labels.parquet")
    (beside / "images").symlink_to(folder)
    skipped = list_images(str(beside)).skipped
    assert skipped.keys() >= {"images.tar", "labels.parquet"}


@pytest.mark.parametrize("name", ["x.parquet", "m.csv", "cat/1.jpg"])
def test_pointers_say_how_to_get_the_file(name: str, tmp_path: Path) -> None:
    touch(tmp_path, "dog/1.jpg" if "/" in name else "readme.md")
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    touch(tmp_path, name).joinpath(name).write_text(text)
    why = "a pointer of Git LFS: run git lfs pull"
    if "/" not in name:
        manifest = str(tmp_path / name) if name == "m.csv" else None
        with pytest.raises(UserError, match=rf"{name} is {why}\."):
            list_images(str(tmp_path), IngestConfig(manifest=manifest))
        return
    assert contents(list_images(str(tmp_path)))[0] == Unread(why)

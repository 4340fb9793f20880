"""Shards of every format give the images of the folder that they were made of."""

import dataclasses
import gzip
import io
import json
import re
import struct
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from benchmarks.gcs_server import GcsServer
from components.contract.errors import ConfigurationError, DataError, UserError
from components.ingest.config import IngestConfig
from components.ingest.datasets import example_records
from components.ingest.datasets.reading import read_images
from components.ingest.datasets.record_listing import split_of_shard
from components.ingest.lookup import list_images
from components.records.record_reader import read_records
from components.records.tfrecord import RecordWriter, Value, serialize
from components.storage.fetch import Unread
from tests.ingest.plain import HEADER, Ingested, ingest
from tests.ingest.test_listing import touch
from tests.pictures import write_folder
from tests.storage.gs_client import point_to


class Image(NamedTuple):
    label: str
    data: bytes


CLASSES = ["blue", "green", "red"]
Write = Callable[[Path, Sequence[Image]], None]


def write_examples(path: Path, examples: Iterable[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with RecordWriter(str(path)) as writer:
        for features in examples:
            writer.write(serialize(features))
    return path


def write_tfrecord(path: Path, images: Sequence[Image]) -> None:
    write_examples(path, ({"image/encoded": d, "image/class/text": label} for label, d in images))


def write_gzip(path: Path, images: Sequence[Image]) -> None:
    write_tfrecord(path, images)
    path.write_bytes(gzip.compress(path.read_bytes()))


def write_tar(path: Path, members: Iterable[tuple[str, bytes]], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def samples(images: Sequence[Image]) -> Iterable[tuple[str, bytes]]:
    for number, (label, data) in enumerate(images):
        # Pickled members are never read, and long names need a member of their own.
        key = f"{'deep/' * 30}{number:05d}" if number == 3 else f"{number:05d}"
        yield from ((f"{key}.jpg", data), (f"{key}.pyd", b"cos\nsystem\n"))
        yield f"{key}.json", json.dumps({"label": label}).encode()


def write_webdataset(path: Path, images: Sequence[Image]) -> None:
    write_tar(path, samples(images), "w:gz" if path.suffix == ".gz" else "w")


def table(images: Sequence[Image]) -> Any:
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows = [{"bytes": data, "path": "x.jpg"} for _, data in images]
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": CLASSES}}
    columns = {
        "image": pa.array(rows, kind),
        "label": pa.array([CLASSES.index(label) for label, _ in images]),
    }
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    return pa.table(columns).replace_schema_metadata(metadata)


def write_parquet(path: Path, images: Sequence[Image]) -> None:
    import pyarrow.parquet

    pyarrow.parquet.write_table(table(images), path, row_group_size=16)


def write_arrow(path: Path, images: Sequence[Image]) -> None:
    make = pa.ipc.new_stream if "stream" in path.name else pa.ipc.new_file
    content = table(images)
    with make(str(path), content.schema) as writer:
        writer.write_table(content, max_chunksize=16)


SHARDS: list[tuple[str, Write]] = [
    ("x-{}.tfrecord", write_tfrecord),
    ("x.tfrecord-{:05d}-of-00002", write_gzip),
    ("x-{}.tar", write_webdataset),
    ("x-{}.tar.gz", write_webdataset),
    ("x-{}.parquet", write_parquet),
    ("stream-{}.arrow", write_arrow),
    ("file-{}.arrow", write_arrow),
]
KINDS = pytest.mark.parametrize(("name", "write"), SHARDS, ids=[name for name, _ in SHARDS])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("datasets") / "images", each=20)


@pytest.fixture(scope="module")
def images(folder: Path) -> list[Image]:
    listing = list_images(str(folder))
    return [Image(file.label, (folder / file.path).read_bytes()) for file in listing.files]


@KINDS
def test_the_images_are_those_of_the_folder(
    name: str, write: Write, folder: Path, images: list[Image], tmp_path: Path
) -> None:
    shards = tmp_path / "shards"
    shards.mkdir()
    for number in range(2):
        write(shards / name.format(number), images[number::2])
    # Found without their numbers: `a#10` would come before `a#9`.
    listing = list_images(str(shards))
    contents = [content for _, content in read_images(str(shards), listing.files, HEADER)]
    assert contents == [image.data for image in (*images[::2], *images[1::2])]
    made, expected = ingest(shards, tmp_path / "a"), ingest(folder, tmp_path / "b")
    assert made.counts == expected.counts
    # Listings of Parquet have mean sizes.
    assert file_sizes(made) == file_sizes(expected)
    assert digests(made.shards("train")) == digests(expected.shards("train"))


def file_sizes(made: Ingested) -> list[int]:
    return sorted(
        example.features.feature["image/file_size"].int64_list.value[0]
        for path in made.examples.glob("Split-*/*")
        for example in map(example_records._parse, map(bytes, read_records(str(path))))
    )


def digests(shards: bytes) -> list[bytes]:
    return sorted(re.findall(rb"[0-9a-f]{64}", shards))


@KINDS
def test_damage_is_one_reject_and_the_rest_is_used(
    name: str, write: Write, images: list[Image], tmp_path: Path
) -> None:
    path = tmp_path / name.format(0)
    write(path, images)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    if name in ("x-{}.parquet", "file-{}.arrow"):  # Their index is at the end.
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
def test_a_shard_that_changes_after_the_listing(
    name: str, write: Write, images: list[Image], tmp_path: Path
) -> None:
    path = tmp_path / name.format(0)
    write(path, images[:30])
    listing = list_images(str(tmp_path))
    write(path, images[20:])
    contents = [content for _, content in read_images(str(tmp_path), listing.files, HEADER)]
    assert {type(content) for content in contents} == {Unread}
    assert list_images(str(tmp_path)).fingerprint() != listing.fingerprint()
    path.unlink()
    [(_, why)] = read_images(str(tmp_path), listing.files[:1], HEADER)
    assert why == Unread("its shard has gone since it was listed")


def test_a_wrong_checksum_rejects_one_record(images: list[Image], tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    write_tfrecord(path, images)
    data = bytearray(path.read_bytes())
    data[data.index(images[4].data) + 50] ^= 1
    path.write_bytes(data)
    made = ingest(tmp_path, tmp_path / "out", dataclasses.replace(HEADER, max_reject_fraction=0.5))
    [reject] = made.lines("rejects.jsonl")
    assert reject == {
        "path": "x.tfrecord#4",
        "category": "unreadable",
        "reason": "its checksum is wrong",
    }
    assert sum(made.counts.values()) == len(images) - 1


def framed(length: int, *, zipped: bool = False) -> bytes:
    import google_crc32c

    from components.records.tfrecord import masked_crc

    size = struct.pack("<Q", length)
    data = size + masked_crc(google_crc32c.value(size)) + b"x" * 100
    return gzip.compress(data) if zipped else data


@pytest.mark.parametrize("length", [2**60, 2**30, 100_000])
@pytest.mark.parametrize("zipped", [False, True])
def test_hostile_lengths(images: list[Image], tmp_path: Path, length: int, zipped: bool) -> None:
    write_tfrecord(tmp_path / "a.tfrecord", images)
    (tmp_path / "b.tfrecord").write_bytes(framed(length, zipped=zipped))
    listing = list_images(str(tmp_path))
    assert listing.files[-1].path == "b.tfrecord#0"
    assert "b.tfrecord is damaged at record 0" in "".join(listing.notes)


@pytest.mark.slow
def test_a_zip_bomb_is_not_held_in_memory(images: list[Image], tmp_path: Path) -> None:
    write_tfrecord(tmp_path / "a.tfrecord", images)
    bomb = serialize({"image/encoded": b"\0" * 2**25, "image/class/text": "red"})
    write_examples(tmp_path / "b", [])
    with RecordWriter(str(tmp_path / "b")) as writer:
        writer.write(bomb)
    (tmp_path / "b.tfrecord.gz").write_bytes(gzip.compress((tmp_path / "b").read_bytes()))
    (tmp_path / "b").unlink()
    config = IngestConfig(check="header", max_image_mib=1, max_reject_fraction=0.5)
    made = ingest(tmp_path, tmp_path / "out", config)
    [reject] = made.lines("rejects.jsonl")
    assert (reject["path"], "MiB" in reject["reason"]) == ("b.tfrecord.gz#0", True)


@pytest.mark.parametrize(
    ("features", "label"),
    [
        ({"image": b"", "label": 2}, "red"),  # TFDS
        ({"image/encoded": b"", "image/class/label": 2, "image/height": 3}, "2"),  # Model Garden
        ({"image/encoded": b"", "image/class/label": 2, "image/class/text": "r"}, "r"),
        ({"image_raw": b"", "class": "red"}, "red"),
        ({"pixels": b"", "label": "red"}, "red"),  # found by its first bytes
    ],
)
def test_known_names(
    features: dict[str, Value], label: str, images: list[Image], tmp_path: Path
) -> None:
    image = next(name for name, value in features.items() if value == b"")
    write_examples(tmp_path / "d-train.tfrecord", [{**features, image: images[0].data}])
    (tmp_path / "label.labels.txt").write_text("".join(f"{name}\n" for name in CLASSES))
    listing = list_images(str(tmp_path))
    assert [(file.label, file.split) for file in listing.files] == [(label, None)]
    reason = "names of the labels" if "label" in features else "not a shard"
    assert dict(listing.skipped) == {"label.labels.txt": reason}


def test_a_first_name_without_records_is_noted(tmp_path: Path) -> None:
    write_examples(tmp_path / "a.tfrecord", [{"image": PNG, "label": n} for n in (1, 2)])
    (tmp_path / "labels.txt").write_text("\n".join(CLASSES))
    assert "write its lines as 1:blue" in list_images(str(tmp_path)).notes[-1]


def test_a_prepared_tfds_folder(images: list[Image], tmp_path: Path) -> None:
    for split, part in (("train", images[::2]), ("test", images[1::2])):
        rows = ({"image": data, "label": CLASSES.index(label)} for label, data in part)
        write_examples(tmp_path / f"3.0.2/flowers-{split}.tfrecord-00000-of-00001", rows)
    for name in ("features.json", "dataset_info.json"):
        (tmp_path / "3.0.2" / name).write_text("{}")
    (tmp_path / "3.0.2" / "label.labels.txt").write_text("\n".join(CLASSES))
    listing = list_images(str(tmp_path))
    assert listing.layout == "tfds"
    assert {file.label for file in listing.files} == set(CLASSES)
    assert {file.split for file in listing.files} == {None, "test"}


@pytest.mark.slow
def test_shards_in_a_bucket(images: list[Image], tmp_path: Path) -> None:
    with GcsServer() as server, point_to(server):
        for name, write in SHARDS:
            path = tmp_path / name.format(0)
            write(path, images)
            server.put("bucket", f"{name}/{path.name}", path.read_bytes())
            server.fault_every = {3: "short"}
            listing = list_images(f"gs://bucket/{name}")
            found = read_images(f"gs://bucket/{name}", listing.files, HEADER)
            assert [content for _, content in found] == [image.data for image in images]


def test_a_damaged_page_of_parquet(images: list[Image], tmp_path: Path) -> None:
    import pyarrow.parquet

    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(table(images), path, row_group_size=16, compression="zstd")
    group = pyarrow.parquet.read_metadata(path).row_group(1)
    columns = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
    start = columns["image.bytes"].data_page_offset
    data = bytearray(path.read_bytes())
    data[start : start + 40] = b"\xff" * 40
    path.write_bytes(data)
    found = read_images(str(tmp_path), list_images(str(tmp_path)).files, HEADER)
    lost = [number for number, (_, content) in enumerate(found) if isinstance(content, Unread)]
    assert lost == list(range(lost[0], len(images)))


def write_pairs(path: Path, images: Sequence[Image]) -> None:
    members = [("0.right.jpg", images[0].data), ("0.left.jpg", images[1].data), ("0.cls", b"1")]
    members += [("1.left.jpg", images[2].data), ("1.cls", b"2"), ("1.cls", b"3")]
    write_tar(path, members)


def test_two_images_of_a_sample(images: list[Image], tmp_path: Path) -> None:
    write_pairs(tmp_path / "x.tar", images)
    listing = list_images(str(tmp_path), IngestConfig(features={"image": "left.jpg"}))
    contents = [content for _, content in read_images(str(tmp_path), listing.files, HEADER)]
    assert contents == [images[1].data, images[2].data]
    listing = list_images(str(tmp_path), IngestConfig(features={"image": "right.jpg"}))
    assert [file.path for file in listing.files] == ["x.tar#0"]
    # A member of the same name begins another sample.
    assert ("x.tar#2", "no image") in listing.skipped
    assert "2 of 3 records are skipped, such as x.tar#1: no image." in listing.notes


def test_names_from_the_options(images: list[Image], tmp_path: Path) -> None:
    parts = ["train", "validation", "test"]
    rows: list[dict[str, Value]] = [
        {"a": data, "b": label, "part": parts[n % 3], "who": "x" * (n % 3)}
        for n, (label, data) in enumerate(images)
    ]
    write_examples(tmp_path / "x.tfrecord", rows)
    names = {"image": "a", "label": "b", "split": "part", "group": "who"}
    listing = list_images(str(tmp_path), IngestConfig(features=names))
    assert listing.taken == "image from a, label from b, split from part, group from who"
    found = [(file.label, file.split, file.group) for file in listing.files[:3]]
    assert found == [("blue", "train", None), ("blue", "eval", "x"), ("blue", "test", "xx")]


def test_a_manifest_names_records(images: list[Image], tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    write_examples(shards / "x.tfrecord", ({"image": data} for _, data in images))
    rows = [f"x.tfrecord#{number},{image.label}\n" for number, image in enumerate(images)][1:]
    (tmp_path / "m.csv").write_text("path,label\n" + "".join(rows))
    listing = list_images(str(shards), IngestConfig(manifest=str(tmp_path / "m.csv")))
    assert [file.label for file in listing.files] == [image.label for image in images[1:]]
    assert {(s.path, s.reason) for s in listing.skipped} == {
        ("x.tfrecord", "not in the manifest"),
        ("x.tfrecord#0", "not in the manifest"),
    }


def test_a_misspelled_option() -> None:
    with pytest.raises(ConfigurationError, match=r"ingest.features names a feature for 'pic'"):
        IngestConfig(features={"pic": "img"})


PNG = b"\x89PNG\r\n\x1a\n"
GOOD = {"image": PNG, "label": 1}


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ({"a.tfrecord": GOOD, "cat/1.jpg": b"x"}, {}, r"both shards and imag"),
        ({"a.tfrecord": GOOD, "b.tar": b"x"}, {}, r"shards of several form"),
        ({"a.tfrecord": GOOD, "b.tfrecord": {"image": PNG}}, {}, r"b.tfrecord"),
        ({"a.tfrecord": GOOD}, {"image": "img"}, r"takes image from 'img'"),
        ({"test-0.tfrecord": GOOD}, {}, r"test, but none of train"),
        (
            {"a.tar": tarfile.TarInfo("a.jpg").tobuf().replace(b"a.jpg", b"b.jpg")},
            {},
            r"a header is damaged \(bad checksum\)",
        ),
        ({"a.parquet": b"x" * 600}, {}, r"None of 1 shards"),
    ],
)
def test_unusable_shards(
    files: dict[str, Any], options: dict[str, str], message: str, tmp_path: Path
) -> None:
    for name, content in files.items():
        if isinstance(content, dict):
            write_examples(tmp_path / name, [content])
        else:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        list_images(str(tmp_path), IngestConfig(features=options or None))


def test_sequences_are_refused(tmp_path: Path) -> None:
    with RecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        writer.write([b"\x0a\x00\x12\x04\x0a\x02\x0a\x00"])
    with pytest.raises(DataError, match="SequenceExamples"):
        list_images(str(tmp_path))


def test_an_archive_beside_its_images_is_skipped(folder: Path, tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.symlink_to(folder)
    (tmp_path / "images.tar").write_bytes(b"")
    (tmp_path / "labels.parquet").write_bytes(b"")
    listing = list_images(str(tmp_path))
    assert {s.path for s in listing.skipped} >= {"images.tar", "labels.parquet"}


@pytest.mark.parametrize(
    ("path", "split"),
    [
        ("data/train-00000-of-00002-0a1b.parquet", "train"),
        ("cifar10-test.tfrecord-00000-of-00001", "test"),
        ("Split-eval/data_tfrecord-00000-of-00008", "eval"),
        ("default/validation/0000.parquet", "eval"),
        ("imagenet-val-000012.tar", "eval"),
        ("strain-0.tar", None),
    ],
)
def test_splits_of_names(path: str, split: str | None) -> None:
    assert split_of_shard(path) == split


# Files → what the error says.
NO_SHARDS = {
    "Delta": (
        ["_delta_log/0.json", "a.parquet"],
        "Cannot read a Delta table, {0}/_delta_log/0.json: read its current",
    ),
    "Iceberg": (["data/a.parquet", "metadata/v1.metadata.json"], "an Iceberg table"),
    "Hudi": ([".hoodie/hoodie.properties", "a.parquet"], "a Hudi table"),
    "HDF5": (["train.h5", "val.h5"], "{0} has no images in label folders: put them at label/image"),
    "nothing but leftovers": (
        ["_temporary/0/a.parquet"],
        "has no shards but _temporary/0/a.parquet and the like, left by",
    ),
}


@pytest.mark.parametrize(("paths", "message"), NO_SHARDS.values(), ids=NO_SHARDS.keys())
def test_what_is_no_data_set_of_shards(tmp_path: Path, paths: list[str], message: str) -> None:
    touch(tmp_path, *paths)
    with pytest.raises(DataError, match=re.escape(message.format(tmp_path))):
        list_images(str(tmp_path))


@pytest.mark.parametrize("log", ["_delta_log/0.json", "metadata/v1.metadata.json"])
def test_the_shards_of_a_table_are_no_data_set(
    log: str, images: list[Image], tmp_path: Path
) -> None:
    touch(tmp_path, log, "data/readme.md")
    write_parquet(tmp_path / "data/0.parquet", images)
    with pytest.raises(DataError, match=rf"Cannot read an? .* table, {tmp_path}/{log}: "):
        list_images(f"{tmp_path}/data")


def test_what_readers_pass_over_is_skipped(images: list[Image], tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    write_tfrecord(tmp_path / "data/train-00000-of-00001", images)
    reasons = {
        "_temporary/0/train-00000-of-00001": "left by an unfinished writer",
        "idx_files/train-00000-of-00001": "an index of shards",
        "model.ckpt-9.data-00000-of-00001": "a checkpoint",
        "cache-0123456789abcdef.arrow": "made by map() of Hugging Face's datasets",
        "notes.bagz.txt": "not a shard",
    }
    listing = list_images(str(touch(tmp_path, *reasons)))
    assert {file.shard for file in listing.files} == {"data/train-00000-of-00001"}
    assert dict(listing.skipped) == reasons


@pytest.mark.parametrize("name", ["x.parquet", "m.csv", "cat/1.jpg"])
def test_pointers_say_how_to_get_the_file(name: str, images: list[Image], tmp_path: Path) -> None:
    touch(tmp_path, "dog/1.jpg" if "/" in name else "readme.md")
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    touch(tmp_path, name).joinpath(name).write_text(text)
    why = "a pointer of Git LFS: run git lfs pull"
    if "/" not in name:
        manifest = str(tmp_path / name) if name == "m.csv" else None
        with pytest.raises(UserError, match=rf"{name} is {why}\."):
            list_images(str(tmp_path), IngestConfig(manifest=manifest))
        return
    listing = list_images(str(tmp_path))
    (_, content), _ = read_images(str(tmp_path), listing.files, HEADER)
    assert content == Unread(why)

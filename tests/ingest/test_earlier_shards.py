"""Ingest of a folder that has changed a little: few reads, and no image changes its split."""

import dataclasses
import itertools
import os
import shutil
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from PIL import Image

from components.ingest.config import IngestConfig
from components.ingest.datasets.reading import read_images
from components.ingest.plan.facts import read_facts
from components.ingest.plan.shard_plan import is_unchanged
from components.ingest.source.corrections import write_corrections
from components.ingest.source.listing import ImageFile
from components.ingest.write import plan_writer
from components.records.shard_files import PLANS, count_examples, read_index
from components.records.tfrecord import read_frames
from tests.ingest import plain
from tests.ingest.plain import HEADER, Ingested
from tests.ingest.test_corrections import decide
from tests.pictures import encode, picture

CONFIG = IngestConfig(splits={"train": 0.6, "eval": 0.4}, min_shard_images=8)
IMAGES = 24


def jpeg(seed: int, **options: object) -> bytes:
    # Small ones would have to be the same to be near duplicates.
    large = picture(seed).resize((48, 36), Image.Resampling.NEAREST)
    return encode(large, "JPEG", **{"quality": 92, **options})


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two labels, one image recompressed, one under both labels, and a broken file."""
    folder = tmp_path_factory.mktemp("original")
    for label, first in (("cat", 0), ("dog", 1000)):
        (folder / label).mkdir()
        for number in range(IMAGES):
            (folder / label / f"{number}.jpg").write_bytes(jpeg(first + number))
    (folder / "cat/twin.jpg").write_bytes(jpeg(3, quality=70))
    shutil.copy(folder / "cat/5.jpg", folder / "dog/cat-5.jpg")
    (folder / "dog/broken.jpg").write_bytes(b"broken")
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "images"))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the files that are read."""
    paths: list[str] = []

    def read(folder: str, files: Sequence[ImageFile], config: IngestConfig) -> object:
        paths.extend(file.path for file in files)
        return read_images(folder, files, config)

    monkeypatch.setattr(plan_writer, "read_images", read)
    return paths


def ingest(
    folder: Path, target: Path, number: int, config: IngestConfig = CONFIG, code: str = "code"
) -> Ingested:
    config = dataclasses.replace(config, max_reject_fraction=0.5)
    return plain.ingest(folder, target, config, number=str(number), code=code)


def content(target: Path, number: int) -> dict[str, bytes]:
    """Every file of the artifacts."""
    files = [
        p for name in ("examples", "rejects") for p in (target / name / str(number)).rglob("*")
    ]
    return {
        str(file.relative_to(target)).replace(f"/{number}/", "/"): file.read_bytes()
        for file in files
        if file.is_file()
    }


def result(target: Path, number: int) -> dict[str, object]:
    """The records of each split, and every file of the rejects."""
    examples = target / "examples" / str(number)
    records: dict[str, object] = {}
    for split, shards in read_index(str(examples))["splits"].items():
        paths = [str(examples / f"Split-{split}" / shard) for shard in shards]
        # It verifies all checksums.
        records[split] = sorted(tf.data.TFRecordDataset(paths).as_numpy_iterator())
    files = content(target, number).items()
    return records | {name: data for name, data in files if name.startswith("rejects")}


def put(path: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / path).write_bytes(data)


add_one = put("cat/new.jpg", jpeg(77))


def remove_some(folder: Path) -> None:
    for number in (1, 2, 3):
        (folder / f"dog/{number}.jpg").unlink()


def add_many(folder: Path) -> None:
    for number in range(100):
        (folder / "dog" / f"more-{number}.jpg").write_bytes(jpeg(2000 + number))


def twin(seed: int) -> bytes:
    return jpeg(seed, quality=60)


CHANGES: dict[str, tuple[Callable[[Path], object], set[str]]] = {
    "nothing": (lambda _: None, set()),
    "a new image": (add_one, {"cat/new.jpg"}),
    "removed images": (remove_some, set()),
    "another label": (lambda d: (d / "dog/9.jpg").rename(d / "cat/of dog.jpg"), {"cat/of dog.jpg"}),
    "another image of the same name": (put("dog/4.jpg", jpeg(500)), {"dog/4.jpg"}),
    "a near duplicate of a known image": (put("dog/twin.jpg", twin(1007)), {"dog/twin.jpg"}),
    "a near duplicate that becomes another's": (put("cat/twin.jpg", twin(4)), {"cat/twin.jpg"}),
    "another time": (lambda folder: os.utime(folder / "cat/8.jpg"), {"cat/8.jpg"}),
    "twice as many shards": (add_many, {f"dog/more-{number}.jpg" for number in range(100)}),
}


def list_splits(target: Path, number: int) -> dict[str, tuple[str, str]]:
    """Path → digest and split of each image that has a record."""
    splits: dict[str, tuple[str, str]] = {}
    for path in (target / "examples" / str(number) / PLANS).glob("*.json"):
        known = read_facts(str(path).removesuffix(".json"))
        splits |= {
            file.path: (fact.sha256, fact.split)
            for file, fact in zip(known.plan.files, known.facts, strict=True)
            if fact.split
        }
    return splits


FAST = {"another label", "a near duplicate of a known image"}
# A small class is divided anew from scratch, here differently.
DIVIDED_ANEW = {"another label", "another image of the same name", "twice as many shards"}


@pytest.mark.parametrize(
    "name",
    [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in CHANGES],
)
def test_records_as_if_all_anew(folder: Path, tmp_path: Path, reads: list[str], name: str) -> None:
    change, expected = CHANGES[name]
    ingest(folder, tmp_path / "out", 1)
    ingest(folder, tmp_path / "anew", 1, code="other code")
    before = content(tmp_path / "out", 1)
    change(folder)
    reads.clear()
    output = ingest(folder, tmp_path / "out", 2)
    assert {*reads} == expected
    assert output.read == len(expected)
    assert ingest(folder, tmp_path / "anew", 2).read == len(list(folder.glob("*/*")))
    assert result(tmp_path / "out", 2) == result(tmp_path / "anew", 2)
    assert content(tmp_path / "out", 1) == before
    old, new = (list_splits(tmp_path / "out", number) for number in (1, 2))
    assert {path for path in old.keys() & new.keys() if old[path] == new[path]} == {
        path for path in old.keys() & new.keys() if old[path][0] == new[path][0]
    }
    ingest(folder, tmp_path / "scratch", 2)
    scratch = list_splits(tmp_path / "scratch", 2)
    assert (result(tmp_path / "out", 2) == result(tmp_path / "scratch", 2)) == (
        name not in DIVIDED_ANEW
    )
    assert {path: digest for path, (digest, _) in new.items()} == {
        path: digest for path, (digest, _) in scratch.items()
    }


def test_groups_keep_their_split_though_copies_have_left_them(tmp_path: Path) -> None:
    folder, groups = tmp_path / "images", {}
    for label, group, number in itertools.product(("cat", "dog"), range(6), range(3)):
        # The last image is the same everywhere.
        seed = 99 if number == 2 else 1_000 * (label == "dog") + 10 * group + number
        name = f"{label}/{group}{number}.jpg"
        (folder / label).mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(jpeg(seed))
        groups[name] = f"{label}{group}"
    manifest = plain.write_manifest(tmp_path / "m.csv", groups)
    config = dataclasses.replace(CONFIG, manifest=manifest)
    splits = []
    for number in (1, 2, 3):
        ingest(folder, tmp_path / "out", number, config)
        splits.append(list_splits(tmp_path / "out", number))
        (folder / "cat/00.jpg").write_bytes(jpeg(500 + number))
    assert len({splits[0][f"{label}/{n}2.jpg"] for label in ("cat", "dog") for n in range(6)}) == 1
    for later in splits[1:]:
        assert {path for path in later if later[path][1] != splits[0][path][1]} == set()


def test_a_class_that_was_all_in_eval_is_divided_anew(folder: Path, tmp_path: Path) -> None:
    ingest(folder, tmp_path / "out", 1)
    (folder / "bird").mkdir()
    for path, (_, split) in list_splits(tmp_path / "out", 1).items():
        if path.startswith("dog/") and split == "eval":
            (folder / path).rename(folder / "bird" / Path(path).name)
    ingest(folder, tmp_path / "out", 2)
    labels = read_index(str(tmp_path / "out/examples/2"))["labels"]
    assert min(labels[split]["bird"] for split in ("train", "eval")) > 0


def test_a_new_class_is_read_and_divided(folder: Path, tmp_path: Path, reads: list[str]) -> None:
    ingest(folder, tmp_path / "out", 1)
    reads.clear()
    (folder / "bird").mkdir()
    # Hashes alone would put all into train.
    in_train = (data for data in map(jpeg, itertools.count(3000)) if sha256(data).digest()[0] > 127)
    for number, data in enumerate(itertools.islice(in_train, 5)):
        (folder / f"bird/{number}.jpg").write_bytes(data)
    ingest(folder, tmp_path / "out", 2)
    assert sorted(reads) == [f"bird/{number}.jpg" for number in range(5)]
    splits = list_splits(tmp_path / "out", 2)
    assert {split for path, (_, split) in splits.items() if "bird" in path} == {"train", "eval"}


def test_unchanged_shards_are_shared_and_left_alone(folder: Path, tmp_path: Path) -> None:
    def list_times() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (examples / "1").rglob("*")}

    examples = tmp_path / "out/examples"
    ingest(folder, tmp_path / "out", 1)
    before = list_times()
    # Writes shards again that have been taken over.
    write_corrections(str(tmp_path / "c.csv"), [decide(folder, "cat/6.jpg", "relabel", "dog")])
    corrected = dataclasses.replace(CONFIG, corrections=str(tmp_path / "c.csv"))
    for number, config in ((2, CONFIG), (3, corrected)):
        add_one(folder)
        ingest(folder, tmp_path / "out", number, config)
        assert list_times() == before
    for pattern in ("Split-*/*", "plans/*.json"):
        files = list((examples / "2").glob(pattern))
        linked = [path for path in files if path.stat().st_nlink > 1]
        assert len(files) / 2 <= len(linked) < len(files)


@pytest.mark.slow
def test_corrections_and_splits_may_change(folder: Path, tmp_path: Path, reads: list[str]) -> None:
    ingest(folder, tmp_path / "out", 1)
    rows = [
        decide(folder, "cat/6.jpg", "relabel", "dog"),
        decide(folder, "cat/7.jpg", "remove"),
        decide(folder, "dog/cat-5.jpg", "relabel", "cat", from_label="dog"),
    ]
    write_corrections(str(tmp_path / "c.csv"), rows)
    corrected = dataclasses.replace(CONFIG, corrections=str(tmp_path / "c.csv"))
    other = dataclasses.replace(CONFIG, splits={"train": 0.5, "eval": 0.3, "test": 0.2})
    # Labels are in the records, so that images with another one are read.
    expected = [{"cat/6.jpg", "dog/cat-5.jpg"}, {"cat/6.jpg", "cat/7.jpg", "dog/cat-5.jpg"}]
    for number, config in enumerate((corrected, CONFIG, other), start=2):
        reads.clear()
        ingest(folder, tmp_path / "out", number, config)
        assert {*reads} <= expected[min(number - 2, 1)]
        ingest(folder, tmp_path / "scratch", number, config, code="")
        scratch = content(tmp_path / "scratch", number)
        reused = content(tmp_path / "out", number)
        assert {k: v for k, v in reused.items() if not k.endswith("index.json")} == {
            k: v for k, v in scratch.items() if not k.endswith("index.json")
        }


@pytest.mark.parametrize("lost", ["Split-train/*", "plans/*.pictures"])
def test_an_earlier_artifact_that_is_being_removed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    ingest(folder, tmp_path / "out", 1)
    expected = content(tmp_path / "out", 1)
    link = os.link

    def remove_first(source: str, target: str) -> None:
        for path in (tmp_path / "out/examples/1").glob(lost):
            path.unlink()
        link(source, target)

    monkeypatch.setattr(os, "link", remove_first)
    output = ingest(folder, tmp_path / "out", 2)
    assert output.read
    assert content(tmp_path / "out", 2) == expected


@pytest.mark.parametrize("values", [(1, 1.0), ({"a": 1, "b": 2}, {"b": 2, "a": 1})], ids=str)
def test_a_column_of_another_type_is_another_record(values: tuple[Any, Any]) -> None:
    before, now = (value if isinstance(value, dict) else {"age": value} for value in values)
    file = ImageFile("a.jpg", "cat", None, 9, "1 1", columns=before)
    assert is_unchanged(file, file)
    assert not is_unchanged(file._replace(columns=now), file)


def overwrite(shard: Path) -> None:
    data = shard.read_bytes()
    shard.write_bytes(data[:200] + bytes(50) + data[250:])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


# What becomes of the first file of a kind.
DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "cut": ("Split-train/*", cut),
    "overwritten": ("Split-train/*", overwrite),
    "no shard": ("Split-train/*", Path.unlink),
    "no plans": (PLANS, shutil.rmtree),
    "no pictures": (f"{PLANS}/*.pictures", Path.unlink),
    "cut facts": (f"{PLANS}/*.json", cut),
    "no index": ("index.json", Path.unlink),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_read_again(folder: Path, tmp_path: Path, reads: list[str], name: str) -> None:
    config = CONFIG if name == "no pictures" else HEADER
    ingest(folder, tmp_path / "out", 1, config)
    expected = result(tmp_path / "out", 1)
    pattern, damage = DAMAGES[name]
    damage(min((tmp_path / "out/examples/1").glob(pattern)))
    reads.clear()
    ingest(folder, tmp_path / "out", 2, config)
    assert reads
    assert result(tmp_path / "out", 2) == expected


def test_splits_outlive_lost_shards(folder: Path, tmp_path: Path, reads: list[str]) -> None:
    ingest(folder, tmp_path / "out", 1, HEADER)
    later = time.time() + 1  # As a copy of the folder has it, beyond the granularity of clocks.
    for shard in (tmp_path / "out/examples/1").glob("Split-*/*"):
        os.utime(shard, (later, later))
    old = list_splits(tmp_path / "out", 1)
    add_many(folder)
    reads.clear()
    ingest(folder, tmp_path / "out", 2, HEADER)
    assert old.keys() <= {*reads}
    assert old.items() <= list_splits(tmp_path / "out", 2).items()


def test_no_new_checksum_hides_damage(folder: Path, tmp_path: Path) -> None:
    ingest(folder, tmp_path / "out", 1)
    for shard in (tmp_path / "out/examples/1").glob("Split-*/*"):
        status = shard.stat()
        overwrite(shard)
        os.utime(shard, ns=(status.st_atime_ns, status.st_mtime_ns))
    remove_some(folder)
    ingest(folder, tmp_path / "out", 2)
    before, after = (
        [
            bytes(framed)
            for path in (tmp_path / uri).glob("Split-*/*")
            for framed in read_frames(str(path))
        ]
        for uri in ("out/examples/1", "out/examples/2")
    )
    assert len(after) == len(before) - 3
    assert {*after} <= {*before}


def test_other_code_or_options_read_all(folder: Path, tmp_path: Path, reads: list[str]) -> None:
    ingest(folder, tmp_path / "out", 1)
    for number, (config, code) in enumerate(
        (
            (CONFIG, "other code"),
            (dataclasses.replace(CONFIG, shrink=20), "code"),
            (dataclasses.replace(CONFIG, near_duplicates="keep"), "code"),
            (CONFIG, ""),
        ),
        start=2,
    ):
        reads.clear()
        output = ingest(folder, tmp_path / "out", number, config, code)
        assert len({*reads}) == output.read == 2 * IMAGES + 3
    assert count_examples(read_index(str(tmp_path / "out/examples/4"))).keys() == {"train", "eval"}


def test_the_unreadable_is_read_again(folder: Path, tmp_path: Path, reads: list[str]) -> None:
    (folder / "cat/link.jpg").symlink_to("nowhere.jpg")
    ingest(folder, tmp_path / "out", 1)
    (folder / "cat/nowhere.jpg").write_bytes(jpeg(900))
    reads.clear()
    ingest(folder, tmp_path / "out", 2)
    assert {*reads} == {"cat/link.jpg", "cat/nowhere.jpg"}

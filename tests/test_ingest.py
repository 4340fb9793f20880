from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from components import example
from components.errors import UserError
from components.image_check import Category, Rejected, read_file
from components.ingest_config import IngestConfig
from components.listing import list_images, open_folder
from components.shards import count_examples, read_index
from tests import nodes
from tests.images import encode, picture, write_folder


def text(record: Any, key: str) -> str:
    return str(record.features.feature[key].bytes_list.value[0].decode())


def test_every_file_becomes_an_example_or_a_reject_or_is_skipped(
    ingested: nodes.Ingested, image_folder: Path
) -> None:
    summary = json.loads(Path(ingested.rejects.uri, "summary.json").read_text())
    assert summary == {
        "files": 122,
        "examples": 120,
        "rejected": 1,
        "skipped": 1,
        "rejected_by_category": {"not an image": 1},
    }
    [reject] = Path(ingested.rejects.uri, "rejects.jsonl").read_text().splitlines()
    assert json.loads(reject) == {
        "path": "red/broken.jpg",
        "category": "not an image",
        "reason": "no image format is recognised",
    }
    records = [r for s in ("train", "eval") for r in nodes.read_examples(ingested.examples, s)]
    found = sorted(text(record, example.FILENAME) for record in records)
    files = [p for p in image_folder.rglob("*.*") if p.name not in ("broken.jpg", ".DS_Store")]
    assert found == sorted(str(path.relative_to(image_folder)) for path in files)


def test_records_hold_the_file_and_its_facts(ingested: nodes.Ingested, image_folder: Path) -> None:
    for record in nodes.read_examples(ingested.examples, "train"):
        path = text(record, example.FILENAME)
        data = (image_folder / path).read_bytes()
        features = record.features.feature
        assert features[example.ENCODED].bytes_list.value[0] == data
        assert text(record, example.SHA256) == hashlib.sha256(data).hexdigest()
        assert text(record, example.LABEL) == path.split("/")[0]
        assert text(record, example.FORMAT) == path.rsplit(".", 1)[1]
        assert features[example.HEIGHT].int64_list.value[0] == 24
        assert features[example.WIDTH].int64_list.value[0] == 32


def test_several_uncompressed_shards_with_an_index(ingested: nodes.Ingested) -> None:
    index = read_index(ingested.examples.uri)
    written = {path for path in nodes.shard_bytes(ingested.examples) if path != "index.json"}
    assert written == {
        f"Split-{s}/{name}" for s, names in index["splits"].items() for name in names
    }
    assert len(index["splits"]["train"]) == 7
    counts = {s: len(nodes.read_examples(ingested.examples, s)) for s in ("train", "eval")}
    assert count_examples(index) == counts
    assert {label for labels in index["labels"].values() for label in labels} == {
        "blue",
        "green",
        "red",
    }


def test_same_bytes_with_one_worker_and_with_several(
    ingested: nodes.Ingested, image_folder: Path, tmp_path: Path
) -> None:
    config = IngestConfig(threads=5)
    again = nodes.ingest(image_folder, tmp_path, config=config, beam_args=nodes.TWO_WORKERS)
    assert nodes.shard_bytes(again.examples) == nodes.shard_bytes(ingested.examples)
    assert nodes.shard_bytes(again.rejects) == nodes.shard_bytes(ingested.rejects)


def test_identical_images_fall_into_the_same_split(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "images", each=20)
    for path in sorted(folder.rglob("*.jpeg")):
        shutil.copy(path, path.with_name(f"copy of {path.name}"))
    ingested = nodes.ingest(folder, tmp_path / "out")
    train, held_out = (
        {text(record, example.SHA256) for record in nodes.read_examples(ingested.examples, split)}
        for split in ("train", "eval")
    )
    assert train
    assert held_out
    assert train.isdisjoint(held_out)


def test_adding_images_moves_none_to_another_split(
    ingested: nodes.Ingested, image_folder: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(image_folder, tmp_path / "images")
    write_folder(folder / "more", each=30, labels=("blue",), first_seed=500)
    shutil.move(folder / "more" / "blue", folder / "blue" / "more")
    shutil.rmtree(folder / "more")
    larger = nodes.ingest(folder, tmp_path / "out")
    for split in ("train", "eval"):
        before, after = (
            {text(record, example.FILENAME) for record in nodes.read_examples(artifact, split)}
            for artifact in (ingested.examples, larger.examples)
        )
        assert before < after


def test_given_splits_are_kept(tmp_path: Path) -> None:
    for number, split in enumerate(("train", "val", "test")):
        write_folder(tmp_path / "images", each=4, split=split, first_seed=number * 100)
    ingested = nodes.ingest(tmp_path / "images", tmp_path / "out")
    index = read_index(ingested.examples.uri)
    assert count_examples(index) == {"train": 12, "eval": 12, "test": 12}
    for record in nodes.read_examples(ingested.examples, "eval"):
        assert text(record, example.FILENAME).startswith("val/")


def break_files(folder: Path, pattern: str, data: bytes = b"broken") -> Path:
    for path in folder.glob(pattern):
        path.write_bytes(data)
    return folder


def test_too_many_rejects_stop_the_run_and_are_named(tmp_path: Path) -> None:
    folder = break_files(write_folder(tmp_path / "images", each=20), "blue/00[0-3].*")
    with pytest.raises(UserError, match=r"4 of 60 files .* such as blue/00.\.\w+ \(not an image\)"):
        nodes.ingest(folder, tmp_path / "out")
    config = IngestConfig(max_reject_fraction=0.1)
    assert nodes.ingest(folder, tmp_path / "again", config=config)


def test_nothing_but_rejects(tmp_path: Path) -> None:
    folder = break_files(write_folder(tmp_path / "images", each=4), "*/*")
    with pytest.raises(UserError, match="All of 12 files"):
        nodes.ingest(folder, tmp_path / "out")


def test_a_class_without_a_usable_image_is_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "images", each=20)
    break_files(folder, "green/*")
    config = IngestConfig(max_reject_fraction=0.5)
    (folder / "red" / "one.png").write_bytes(encode(picture(77), "PNG"))
    ingested = nodes.ingest(folder, tmp_path / "out", config=config)
    assert read_index(ingested.examples.uri)["labels"]["train"].keys() == {"blue", "red"}
    untrained = tmp_path / "images2"
    write_folder(untrained, each=4, split="train")
    write_folder(untrained, each=4, split="eval")
    break_files(untrained, "train/green/*")
    with pytest.raises(UserError, match=r"Class 'green' .* no usable image to train on"):
        nodes.ingest(untrained, tmp_path / "out2", config=config)


def test_too_few_images_for_two_splits(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "images", each=1)
    shares = {"train": 0.999999, "eval": 0.000001}
    with pytest.raises(UserError, match="falls into the eval split"):
        nodes.ingest(folder, tmp_path / "out", config=IngestConfig(splits=shares))


def test_a_file_that_changes_while_it_is_read_is_rejected(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, each=1)
    file = list_images(str(folder)).files[0]
    (folder / file.path).write_bytes(b"longer than before" * 1000)
    fs, root = open_folder(str(folder))
    with pytest.raises(Rejected, match="it changed meanwhile"):
        read_file(fs, f"{root}/{file.path}", file.size, IngestConfig())


def test_a_large_file_is_rejected_unread(tmp_path: Path) -> None:
    fs, _ = open_folder(str(tmp_path))
    config = IngestConfig(max_image_mib=0.5)
    with pytest.raises(Rejected, match=r"1\.0 MiB, above 0\.5") as caught:
        read_file(fs, "/never/opened", 2**20, config)
    assert caught.value.category == Category.TOO_LARGE


def test_a_broken_link_is_rejected(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "images", each=20)
    (folder / "blue" / "gone.jpg").symlink_to("nowhere")
    config = IngestConfig(max_reject_fraction=0.1)
    ingested = nodes.ingest(folder, tmp_path / "out", config=config)
    reject = json.loads(Path(ingested.rejects.uri, "rejects.jsonl").read_text())
    assert (reject["path"], reject["category"]) == ("blue/gone.jpg", "unreadable")

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from PIL import Image

from components.contract import example
from components.contract.errors import UserError
from components.ingest.component import ImageExampleGen
from components.ingest.config import IngestConfig
from components.ingest.driver import Driver
from components.ingest.listing import list_images
from components.records.shard_files import count_examples, read_index
from tests import nodes
from tests.pictures import encode, picture, write_folder


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
        "skipped_by_reason": {"hidden": 1},
        "duplicates": 0,
        "label_conflicts": 0,
        "in_several_splits": 0,
    }
    [skipped] = Path(ingested.rejects.uri, "skipped.jsonl").read_text().splitlines()
    assert json.loads(skipped) == {"path": "red/.DS_Store", "reason": "hidden"}
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
        assert features[example.CHANNELS].int64_list.value[0] == 3
        assert features[example.FILE_SIZE].int64_list.value[0] == len(data)
        gray = np.asarray(Image.open(io.BytesIO(data)).convert("L"))
        luminance = features[example.LUMINANCE].float_list.value[0]
        assert luminance == pytest.approx(gray.mean(), abs=1)


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


def lines(folder: str, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(folder, name).read_text().splitlines()]


def folder_with_conflicts(folder: Path) -> Path:
    """One image under two labels, and one twice under the same."""
    write_folder(folder, each=20)
    shutil.copy(folder / "blue" / "001.jpeg", folder / "red" / "also blue.jpeg")
    shutil.copy(folder / "blue" / "002.jpeg", folder / "blue" / "again.jpeg")
    return folder


def test_duplicates_and_conflicts_are_listed(tmp_path: Path) -> None:
    ingested = nodes.ingest(folder_with_conflicts(tmp_path / "images"), tmp_path / "out")
    summary = json.loads(Path(ingested.rejects.uri, "summary.json").read_text())
    assert (summary["examples"], summary["duplicates"], summary["label_conflicts"]) == (62, 2, 1)
    conflict, twice = lines(ingested.rejects.uri, "duplicates.jsonl")
    assert conflict["paths"] == ["blue/001.jpeg", "red/also blue.jpeg"]
    assert conflict["labels"] == ["blue", "red"]
    assert (twice["paths"], twice["labels"]) == (["blue/002.jpeg", "blue/again.jpeg"], ["blue"])
    assert len(conflict["splits"]) == len(twice["splits"]) == 1


def test_conflicts_are_dropped_and_accounted_for(tmp_path: Path) -> None:
    folder = folder_with_conflicts(tmp_path / "images")
    config = IngestConfig(conflicts="drop", max_reject_fraction=0)
    ingested = nodes.ingest(folder, tmp_path / "out", config=config)
    rejects = lines(ingested.rejects.uri, "rejects.jsonl")
    assert [(r["path"], r["category"]) for r in rejects] == [
        ("blue/001.jpeg", "label conflict"),
        ("red/also blue.jpeg", "label conflict"),
    ]
    records = [r for s in ("train", "eval") for r in nodes.read_examples(ingested.examples, s)]
    assert len(records) == 60
    assert count_examples(read_index(ingested.examples.uri)) == {
        split: len(nodes.read_examples(ingested.examples, split)) for split in ("train", "eval")
    }
    # As if they had never been there, but for the shards' sizes.
    found = {text(record, example.FILENAME) for record in records}
    assert found == {f"{p.parent.name}/{p.name}" for p in folder.glob("*/*")} - {
        "blue/001.jpeg",
        "red/also blue.jpeg",
    }


def test_conflicts_may_stop_the_run(tmp_path: Path) -> None:
    folder = folder_with_conflicts(tmp_path / "images")
    with pytest.raises(UserError, match=r"1 images .* blue/001\.jpeg = red/also blue\.jpeg"):
        nodes.ingest(folder, tmp_path / "out", config=IngestConfig(conflicts="fail"))


def test_an_image_in_two_given_splits_is_counted(tmp_path: Path) -> None:
    for number, split in enumerate(("train", "eval")):
        write_folder(tmp_path / "images", each=4, split=split, first_seed=number * 100)
    shutil.copy(tmp_path / "images/train/red/001.jpeg", tmp_path / "images/eval/red/leaked.jpeg")
    ingested = nodes.ingest(tmp_path / "images", tmp_path / "out")
    summary = json.loads(Path(ingested.rejects.uri, "summary.json").read_text())
    assert (summary["duplicates"], summary["in_several_splits"]) == (1, 1)
    [leak] = lines(ingested.rejects.uri, "duplicates.jsonl")
    assert leak["splits"] == ["eval", "train"]


def test_groups_of_a_manifest_stay_together(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "images", each=30)
    rows = ["path,label,group"]
    for path in sorted(folder.glob("*/*")):
        film = int(path.stem) // 5
        rows.append(f"{path.parent.name}/{path.name},{path.parent.name},film {film}")
    (tmp_path / "manifest.csv").write_text("\n".join(rows))
    config = IngestConfig(
        manifest=str(tmp_path / "manifest.csv"), splits={"train": 0.5, "eval": 0.5}
    )
    ingested = nodes.ingest(folder, tmp_path / "out", config=config)
    films = {
        split: {
            int(Path(text(record, example.FILENAME)).stem) // 5
            for record in nodes.read_examples(ingested.examples, split)
        }
        for split in ("train", "eval")
    }
    assert films["train"]
    assert films["eval"]
    assert films["train"].isdisjoint(films["eval"])


def test_the_newest_span_is_ingested(tmp_path: Path) -> None:
    for day, each in (("2025-01-01", 8), ("2025-01-02", 12)):
        write_folder(tmp_path / day, each=each)
    ingested = nodes.ingest(tmp_path / "{YYYY}-{MM}-{DD}", tmp_path / "new")
    assert sum(count_examples(read_index(ingested.examples.uri)).values()) == 36
    config = IngestConfig(span=20089)
    ingested = nodes.ingest(tmp_path / "{YYYY}-{MM}-{DD}", tmp_path / "old", config=config)
    assert sum(count_examples(read_index(ingested.examples.uri)).values()) == 24


def test_nothing_of_an_earlier_attempt_is_left(
    ingested: nodes.Ingested, image_folder: Path, tmp_path: Path
) -> None:
    for name in ("Split-train/data_tfrecord-00009-of-00010", "index.json", ".unfinished/x"):
        path = tmp_path / "examples" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"left by a killed run")
    again = nodes.ingest(image_folder, tmp_path)
    assert nodes.shard_bytes(again.examples) == nodes.shard_bytes(ingested.examples)


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


def test_a_broken_link_is_rejected(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "images", each=20)
    (folder / "blue" / "gone.jpg").symlink_to("nowhere")
    config = IngestConfig(max_reject_fraction=0.1)
    ingested = nodes.ingest(folder, tmp_path / "out", config=config)
    reject = json.loads(Path(ingested.rejects.uri, "rejects.jsonl").read_text())
    assert (reject["path"], reject["category"]) == ("blue/gone.jpg", "unreadable")


HOSTILE = [
    b"a b.jpg",
    "новый.jpg".encode(),
    b"100%2e%2e.jpg",
    b"line\nbreak.jpg",
    b"..jpg",
    b"-rf",
    b"#1?.jpg",
    b"*.jpg",
    b"{0}$(reboot).jpg",
    b"caf\xe9.jpg",
    b"x" * 255,
    b"CASE.jpg",
    b"case.jpg",
    b"no extension",
    b"wrong.gif",
]


def test_hostile_names_and_links(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "images", each=10)
    for number, name in enumerate(HOSTILE):
        path = os.path.join(os.fsencode(folder / "red"), name)
        Path(os.fsdecode(path)).write_bytes(encode(picture(1000 + number), "JPEG"))
    (folder / "blue" / "loop").symlink_to(folder / "blue")
    (folder / "blue" / "itself.jpg").symlink_to("itself.jpg")
    (folder / "blue" / "nowhere.jpg").symlink_to("nothing")
    config = IngestConfig(max_reject_fraction=0.1)
    ingested = nodes.ingest(folder, tmp_path / "out", config=config)
    records = [r for s in ("train", "eval") for r in nodes.read_examples(ingested.examples, s)]
    names = {r.features.feature[example.FILENAME].bytes_list.value[0] for r in records}
    # A name that begins with a dot is hidden.
    assert {b"red/" + name for name in HOSTILE} - names == {b"red/..jpg"}
    rejects = lines(ingested.rejects.uri, "rejects.jsonl")
    assert [(r["path"], r["category"]) for r in rejects] == [
        ("blue/itself.jpg", "unreadable"),
        ("blue/nowhere.jpg", "unreadable"),
    ]
    assert lines(ingested.rejects.uri, "skipped.jsonl") == [
        {"path": "blue/loop", "reason": "no file"},
        {"path": "red/..jpg", "reason": "hidden"},
    ]


def test_a_folder_that_changes_after_the_lookup_in_the_cache_stops_the_run(
    tmp_path: Path,
) -> None:
    folder = write_folder(tmp_path / "images", each=10)
    seen = list_images(str(folder)).fingerprint()
    assert nodes.ingest(folder, tmp_path / "out", fingerprint=seen)
    (folder / "red" / "new.jpg").write_bytes(encode(picture(77), "JPEG"))
    with pytest.raises(UserError, match="has changed since this run began"):
        nodes.ingest(folder, tmp_path / "again", fingerprint=seen)


def test_header_check_and_shrink_make_whole_records(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "images", each=20)
    config = IngestConfig(check="header", shrink=16)
    ingested = nodes.ingest(folder, tmp_path / "out", config=config)
    for record in nodes.read_examples(ingested.examples, "train"):
        features = record.features.feature
        assert text(record, example.FORMAT) == "jpeg"
        assert features[example.HEIGHT].int64_list.value[0] == 16
        pixels = Image.open(io.BytesIO(features[example.ENCODED].bytes_list.value[0]))
        assert pixels.size == (21, 16)
        source = (folder / text(record, example.FILENAME)).read_bytes()
        assert text(record, example.SHA256) == hashlib.sha256(source).hexdigest()
        assert features[example.FILE_SIZE].int64_list.value[0] == len(source)


def resolve(pattern: str, config: IngestConfig) -> dict[str, Any]:
    """What the driver adds to the properties that the cache is looked up with."""
    generator = ImageExampleGen(folder=pattern, config=config)
    return Driver(None).resolve_exec_properties(dict(generator.exec_properties), None, None)


def test_the_driver_keys_the_cache_by_span_version_and_content(tmp_path: Path) -> None:
    pattern = f"{tmp_path}/{{YYYY}}-{{MM}}-{{DD}}/v{{VERSION}}"
    write_folder(tmp_path / "2025-01-01" / "v1", each=4)
    first = resolve(pattern, IngestConfig())
    assert (first["span"], first["version"]) == (20089, 1)
    assert resolve(pattern, IngestConfig()) == first
    write_folder(tmp_path / "2025-01-01" / "v2", each=5)
    second = resolve(pattern, IngestConfig())
    assert (second["span"], second["version"]) == (20089, 2)
    write_folder(tmp_path / "2025-01-02" / "v1", each=6)
    third = resolve(pattern, IngestConfig())
    assert (third["span"], third["version"]) == (20090, 1)
    assert len({r["input_fingerprint"] for r in (first, second, third)}) == 3
    assert resolve(pattern, IngestConfig(span=20089)) == {**second, "ingest": mock.ANY}
    with pytest.raises(UserError, match="No folder matches"):
        resolve(pattern, IngestConfig(span=1))


def test_lists_are_there_even_when_they_are_empty(tmp_path: Path) -> None:
    ingested = nodes.ingest(write_folder(tmp_path / "images", each=10), tmp_path / "out")
    names = {"rejects.jsonl", "skipped.jsonl", "duplicates.jsonl", "summary.json"}
    assert set(nodes.shard_bytes(ingested.rejects)) == names

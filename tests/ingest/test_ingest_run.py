import dataclasses
import os
import shutil
from pathlib import Path

import pytest

from components.contract.errors import DataError
from components.images.check_result import CheckedImage, Note
from components.ingest.lookup import list_images
from components.ingest.survey import take_survey
from components.records.shard_files import read_index
from components.storage import row_table
from tests.files import write_files
from tests.ingest.plain import HEADER, ingest, write_manifest
from tests.pictures import encode, picture, write_folder


@pytest.fixture
def contradictory(tmp_path: Path) -> Path:
    """One image under two labels, and one twice under the same."""
    folder = write_folder(tmp_path / "images", each=20)
    shutil.copy(folder / "blue" / "001.jpeg", folder / "red" / "also blue.jpeg")
    shutil.copy(folder / "blue" / "002.jpeg", folder / "blue" / "again.jpeg")
    return folder


def test_duplicates_and_conflicts_are_listed(contradictory: Path, tmp_path: Path) -> None:
    output = ingest(contradictory, tmp_path / "out")
    assert [output.summary[k] for k in ("examples", "duplicates", "label_conflicts")] == [62, 2, 1]
    conflict, twice = output.lines("duplicates.jsonl")
    assert conflict["paths"] == ["blue/001.jpeg", "red/also blue.jpeg"]
    assert conflict["labels"] == ["blue", "red"]
    assert (twice["paths"], twice["labels"]) == (["blue/002.jpeg", "blue/again.jpeg"], ["blue"])
    assert len(conflict["splits"]) == len(twice["splits"]) == 1


def test_it_does_not_matter_where_lists_of_files_are_kept(
    contradictory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = ingest(contradictory, tmp_path / "out")
    monkeypatch.setattr(row_table, "MOST_IN_MEMORY", 10)
    on_disk = ingest(contradictory, tmp_path / "on disk")
    assert [on_disk.shards(split) for split in output.counts] == [
        output.shards(split) for split in output.counts
    ]
    assert on_disk.summary == output.summary


def test_notes_on_images_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wide = CheckedImage(b"", "jpeg", 1, 1, 3, None, notes=(Note.DARK,))
    monkeypatch.setattr("components.ingest.write.plan_writer.check_image", lambda *_: wide)
    output = ingest(write_folder(tmp_path / "images", each=8), tmp_path / "out")
    assert output.summary["notes"] == {Note.DARK: 24}
    assert f"24 of 24 images: {Note.DARK}." in caplog.text


def test_given_splits_are_kept_and_leaks_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    for number, split in enumerate(("train", "val", "test")):
        write_folder(folder, each=4, split=split, first_seed=number * 100)
    shutil.copy(folder / "train/red/001.jpeg", folder / "val/red/leaked.jpeg")
    output = ingest(folder, tmp_path / "out")
    assert output.counts == {"train": 12, "eval": 13, "test": 12}
    assert b"val/red/001.jpeg" in output.shards("eval")
    assert (output.summary["duplicates"], output.summary["in_several_splits"]) == (1, 1)
    [leak] = output.lines("duplicates.jsonl")
    assert leak["splits"] == ["eval", "train"]


def test_an_earlier_attempt_leaves_nothing(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "images", each=10)
    left = ("Split-train/data_tfrecord-00009-of-00010", "index.json", ".unfinished/x")
    write_files(tmp_path / "again" / "examples", dict.fromkeys(left, b"left by a killed run"))
    output = [ingest(folder, tmp_path / name) for name in ("once", "again")]
    once, again = ({p.name for p in m.examples.rglob("*")} for m in output)
    assert once == again
    assert output[0].shards("train") == output[1].shards("train")
    # The lists are there even when they are empty.
    names = {"rejects.jsonl", "skipped.jsonl", "duplicates.jsonl", "summary.json"}
    names.add("near_duplicates.jsonl")
    assert {path.name for path in output[0].rejects.iterdir()} == names


def break_files(folder: Path, pattern: str) -> Path:
    for path in folder.glob(pattern):
        path.write_bytes(b"broken")
    return folder


def test_too_many_rejects_stop_the_run_and_are_named(tmp_path: Path) -> None:
    folder = break_files(write_folder(tmp_path / "images", each=20), "blue/00[0-3].*")
    with pytest.raises(DataError, match=r"4 of 60 files .* such as blue/00.\.\w+ \(not an image\)"):
        ingest(folder, tmp_path / "out")
    config = dataclasses.replace(HEADER, max_reject_fraction=0.1)
    assert sum(ingest(folder, tmp_path / "again", config).counts.values()) == 56
    with pytest.raises(DataError, match="All of 60 files"):
        ingest(break_files(folder, "*/*"), tmp_path / "nothing", config)


@pytest.mark.parametrize(
    ("folder", "broken", "where"),
    [
        ("images", "green/*", "has no usable image: green/000"),
        ("untrained", "train/green/*", "has no usable image in split 'train': train/green/000"),
        ("untrained", "val/green/*", "has no usable image in split 'eval': val/green/000"),
    ],
)
def test_an_unusable_class_is_named(tmp_path: Path, folder: str, broken: str, where: str) -> None:
    """By `inspect`, too, which looks at a sample."""
    write_folder(tmp_path / "images", each=120)
    for split in ("train", "val"):
        write_folder(tmp_path / "untrained", each=20 if split == "train" else 1, split=split)
    images = break_files(tmp_path / folder, broken)
    config = dataclasses.replace(HEADER, max_reject_fraction=0.5)
    with pytest.raises(DataError, match=f"Class 'green' .* {where}.* is rejected .not an image"):
        ingest(images, tmp_path / "out", config)
    if folder == "untrained":
        with pytest.raises(DataError, match=f"Class 'green' .* {where}"):
            take_survey(list_images(str(images)), config)


HOSTILE = [
    *(b"a b.jpg", "новый.jpg".encode(), b"100%2e%2e.jpg", b"line\nbreak.jpg", b"..jpg", b"-rf"),
    *(b"#1?.jpg", b"*.jpg", b"{0}$(reboot).jpg", b"caf\xe9.jpg", b"x" * 255, b"CASE.jpg"),
    *(b"case.jpg", b"no extension", b"wrong.gif"),
]


@pytest.mark.parametrize("grouped", [False, True])
def test_rejected_files_do_not_count_in_small_classes(tmp_path: Path, *, grouped: bool) -> None:
    """Of three images, the two that are usable train and judge."""
    names = {f"{label}/{n}.jpeg": f"{label}{n}" for label in "abcdefghijkl" for n in range(3)}
    images = {
        name: encode(picture(number), "JPEG")[: 100 if number % 3 == 0 else None]
        for number, name in enumerate(names)
    }
    write_files(tmp_path / "images", images)
    manifest = write_manifest(tmp_path / "list.csv", names) if grouped else None
    config = dataclasses.replace(HEADER, max_reject_fraction=0.5, manifest=manifest)
    output = ingest(tmp_path / "images", tmp_path / "out", config)
    labels = read_index(str(output.examples))["labels"]
    assert labels == dict.fromkeys(("eval", "train"), dict.fromkeys("abcdefghijkl", 1))


def test_hostile_names_and_links(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "images", each=10)
    for number, name in enumerate(HOSTILE):
        path = os.path.join(os.fsencode(folder / "red"), name)
        Path(os.fsdecode(path)).write_bytes(encode(picture(1000 + number), "JPEG"))
    (folder / "blue" / "loop").symlink_to(folder / "blue")
    (folder / "blue" / "itself.jpg").symlink_to("itself.jpg")
    (folder / "blue" / "nowhere.jpg").symlink_to("nothing")
    output = ingest(folder, tmp_path / "out", dataclasses.replace(HEADER, max_reject_fraction=0.1))
    records = output.shards("train") + output.shards("eval")
    # A name that begins with a dot is hidden.
    assert [name for name in HOSTILE if b"red/" + name not in records] == [b"..jpg"]
    assert output.rejected() == [
        ("blue/itself.jpg", "unreadable"),
        ("blue/nowhere.jpg", "unreadable"),
    ]
    assert output.lines("skipped.jsonl") == [
        {"path": "blue/loop", "reason": "a link to a folder that is listed already"},
        {"path": "red/..jpg", "reason": "hidden"},
    ]


def test_only_splits_by_hash_may_be_divided_into_folds(tmp_path: Path) -> None:
    write_folder(tmp_path / "images", each=20)
    for folder, other in (("folders", "val"), ("tested", "test")):
        for split in ("train", other):
            write_folder(tmp_path / folder / split, each=20)
    chosen = dataclasses.replace(HEADER, splits={"train": 0.7, "eval": 0.3})
    cases = [("images", HEADER, True), ("tested", HEADER, True)]
    cases += [("folders", HEADER, False), ("images", chosen, False)]
    for number, (name, config, divided) in enumerate(cases):
        output = ingest(tmp_path / name, tmp_path / str(number), config)
        assert read_index(str(output.examples)).get("groups") == ({} if divided else None)


def test_images_of_a_group_are_named_for_the_folds(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "images", each=10)
    films = {
        str(path.relative_to(folder)): "film" if path.stem < "003" else ""
        for path in sorted(folder.glob("*/*"))
    }
    config = dataclasses.replace(HEADER, manifest=write_manifest(tmp_path / "m.csv", films))
    groups = read_index(str(ingest(folder, tmp_path, config).examples))["groups"]
    assert len(groups) == 9
    assert len(set(groups.values())) == 1

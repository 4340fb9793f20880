"""`local_runner.py review --apply-to COPY`."""

import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import local_runner
from components.contract.errors import ConfigurationError, DataError, UserError
from components.ingest.config import IngestConfig
from components.ingest.lookup import list_images
from components.ingest.source.corrections import Correction, write_corrections
from pipeline_def.apps.review.corrected_copy import CorrectedCopy, write_corrected_copy
from pipeline_def.runs.record import Data
from tests.conftest import Refusal
from tests.files import read_files
from tests.ingest.test_corrections import decide
from tests.local.run_samples import write_run
from tests.pictures import write_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = write_folder(tmp_path / "images", each=4)
    (folder / "notes.txt").touch()
    return folder


def copy(folder: Path, *rows: Correction, **options: str) -> CorrectedCopy:
    path = folder.parent / "c.csv"
    write_corrections(str(path), rows)
    target = options.pop("target", str(folder.parent / "copy"))
    config = IngestConfig(**options)  # type: ignore[arg-type]
    return write_corrected_copy(str(folder), config, corrections=str(path), target=target)


def test_the_copy_has_corrected_labels_and_the_source_stays(folder: Path) -> None:
    before, stamps = read_files(folder), {path: path.stat() for path in folder.rglob("*")}
    (folder.parent / "copy").mkdir()
    report = copy(
        folder,
        decide(folder, "blue/001.jpeg", "relabel", "red"),
        decide(folder, "blue/002.jpeg", "remove"),
        decide(folder, "blue/003.jpeg", "relabel", "rde"),
        decide(folder, "red/003.jpeg", "relabel", "green", from_label="blue"),
    )
    expected = {path: data for path, data in before.items() if path != "notes.txt"}
    moved, _ = expected.pop("blue/001.jpeg"), expected.pop("blue/002.jpeg")
    copied = read_files(folder.parent / "copy")
    [new] = copied.keys() - expected.keys()
    assert new.startswith("red/001-")
    assert copied == expected | {new: moved}
    assert [outcome.result for outcome in report.outcomes] == [
        "relabeled",
        "removed",
        *["not_applied"] * 2,
    ]
    assert (report.files, report.skipped, report.unread, report.has_groups) == (11, 1, (), False)
    assert {path: path.stat() for path in folder.rglob("*")} == stamps
    listing = list_images(str(folder.parent / "copy"))
    assert {f.label for f in listing.files if f.path == new} == {"red"}


@pytest.mark.parametrize("splits", [("", ""), ("train", "eval"), ("", "test")])
def test_labels_of_a_manifest_become_folders(folder: Path, splits: tuple[str, str]) -> None:
    paths = [f"{path.parent.name}/{path.name}" for path in folder.glob("*/*")]
    split = {path: splits["003" in path] for path in [*paths, "gone.jpg"]}
    rows = [f"{path},{path[0]}-class,{split[path]},of {split[path]}" for path in split]
    manifest = folder.parent / "m.csv"
    manifest.write_text("\n".join(["path,label,split,group", *rows]))
    if any(splits):
        splits = (splits[0] or "train", splits[1])
        split = {path: name or "train" for path, name in split.items()}
    row = decide(folder, "blue/001.jpeg", "relabel", "r-class", from_label="b-class")
    report = copy(folder, row, manifest=str(manifest))
    places = {os.path.join(split[path], f"{path[0]}-class", path) for path in paths}
    moved = {os.path.join(splits[0], label, "blue/001.jpeg") for label in ("b-class", "r-class")}
    assert read_files(folder.parent / "copy").keys() == places ^ moved
    assert [text.split(":")[0] for text in report.unread] == ["gone.jpg"]
    assert report.has_groups


def test_a_label_that_is_no_folder_name_is_refused(folder: Path) -> None:
    manifest = folder.parent / "m.csv"
    manifest.write_text("path,label\nblue/001.jpeg,../b\nred/001.jpeg,a\n")
    with pytest.raises(DataError, match=r"label '\.\./b' cannot be the name of a folder"):
        copy(folder, manifest=str(manifest))
    assert sorted(os.listdir(folder.parent)) == ["c.csv", "images", "m.csv"]


@pytest.mark.parametrize("where", ["images", "images/new", "link/new", "full", "c.csv"])
def test_a_place_that_could_hold_something_is_refused(folder: Path, where: str) -> None:
    (folder.parent / "link").symlink_to(folder)
    (folder.parent / "full" / "a").mkdir(parents=True)
    before = read_files(folder)
    with pytest.raises(ConfigurationError, match=r"--apply-to .* (lies in|exists)"):
        copy(folder, target=str(folder.parent / where))
    assert read_files(folder) == before


def test_a_failure_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really_open = open

    def fail(file: Any, mode: str = "r", *others: Any, **options: Any) -> Any:
        if mode == "xb":
            raise OSError(28, "No space left on device")
        return really_open(file, mode, *others, **options)

    monkeypatch.setattr("builtins.open", fail)
    with pytest.raises(UserError, match=r"Cannot write .*copy: .*No space left"):
        copy(folder)
    assert "copy" not in " ".join(os.listdir(folder.parent))


EARLIER = {"near_duplicates": "drop", "transcode": "png"}
"""Options of ingest as an earlier version has recorded them."""


def test_the_command_copies_the_images_of_the_newest_run(
    folder: Path, capsys: pytest.CaptureFixture[str], refusal: Refusal
) -> None:
    output = folder.parent / "out"
    write_run(output, 1, data=Data(folder=str(folder)), configuration={"ingest": EARLIER})
    rows = [
        decide(folder, "blue/001.jpeg", "relabel", "red"),
        decide(folder, "red/003.jpeg", "keep"),
    ]
    write_corrections(
        str(output / "corrections.csv"), [*rows, dataclasses.replace(rows[1], sha256="0" * 64)]
    )
    target = folder.parent / "copy"
    argv = ["review", "--output", str(output), "--apply-to", str(target)]
    assert local_runner.main(argv) == 0
    said = capsys.readouterr().out
    assert "1 relabeled, 1 kept, 1 not applied" in said
    assert "red/003.jpeg: no file has this content" in said
    assert f"{target}, 12 files; 1 files skipped" in said
    assert len(read_files(target)) == 12
    shutil.rmtree(target)
    (output / "corrections.csv").write_text("sha256\n")
    assert "first line must be sha256,path" in refusal(*argv)
    assert not target.exists()
